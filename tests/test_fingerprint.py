"""The address of a run covers the code that it is made of: changed code is another run, and an old one says so."""

import json
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import offbeat
from offbeat import cli
from offbeat.lab.config.sources import sources
from offbeat.lab.studies import comparing
from offbeat.lab.studies.sweep import plan_sweep

TASK = """
    import torch
    {imports}

    def task():
        x = torch.linspace(-1, 1, 64)[:, None]
        return torch.nn.Linear(1, 1), torch.nn.MSELoss(), (x, {slope} * x), (x, 3 * x)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, where we are and where modules are looked for; they are forgotten before each run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    forget(tmp_path)


def forget(folder: Path) -> None:
    inside = [n for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(str(folder))]
    for name in [*inside, "deep", "deep.inner"]:
        sys.modules.pop(name, None)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


@pytest.fixture
def folder_of(here, monkeypatch, capsys):
    """The folder in which `offbeat run` of a task of one's own ends, its code read anew."""

    def run(*args: str) -> str:
        forget(here)
        words = ["offbeat", "run", *args, "--batch", "8", "--budget", "2epochs", "--json"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert not stop.value.code, err
        return str(json.loads(out)["run"])

    return run


@pytest.mark.parametrize(
    ("imports", "slope", "file"),
    [
        ("import helper", "helper.SLOPE", "helper.py"),
        ("from helper import SLOPE", "SLOPE", "helper.py"),
        ("from deep.inner import helper", "helper.SLOPE", "deep/inner/helper.py"),
        ("import deep.inner.helper as h", "h.SLOPE", "deep/inner/helper.py"),
        ("from between import SLOPE", "SLOPE", "helper.py"),
        ("from package import SLOPE", "SLOPE", "package/part.py"),
    ],
)
def test_a_change_in_whatever_a_task_imports_is_another_run(folder_of, here, imports, slope, file):
    write(here / "fact.py", TASK.format(imports=imports, slope=slope))
    write(here / "between.py", "from helper import *\n")
    write(here / "package/__init__.py", "from .part import SLOPE\n")
    write(here / file, "SLOPE = 3\n")
    first = folder_of("fact:task")
    assert folder_of("fact:task") == first, "the same code is the same run"
    write(here / file, "SLOPE = 300\n")
    assert folder_of("fact:task") != first


def test_a_module_imported_where_it_is_needed_counts(folder_of, here):
    write(here / "helper.py", "SLOPE = 3\n")
    write(here / "fact.py", TASK.format(imports="", slope='__import__("operator").add(0, slope())') + LATE)
    first = folder_of("fact:task")
    write(here / "helper.py", "SLOPE = 300\n")
    assert folder_of("fact:task") != first


LATE = """
    def slope():
        from helper import SLOPE

        return SLOPE
"""


def test_a_change_in_a_module_that_is_not_imported_is_the_same_run(folder_of, here):
    write(here / "fact.py", TASK.format(imports="", slope="3"))
    write(here / "other.py", "SLOPE = 3\n")
    first = folder_of("fact:task")
    write(here / "other.py", "SLOPE = 300\n")
    assert folder_of("fact:task") == first


def test_the_code_of_a_solver_counts_likewise(folder_of, here):
    write(here / "halved.py", "FACTOR = 0.5\n")
    write(
        here / "rule.py",
        """
        from halved import FACTOR
        from offbeat.solvers.parameter_server import ParameterServer

        class Gently(ParameterServer):
            line, paper = "ASGD, gently", "-"

            def __init__(self, opt) -> None:
                super().__init__(opt, correct=lambda s, arrival: (arrival.gradient.value, FACTOR))
        """,
    )
    write(here / "fact.py", TASK.format(imports="", slope="3"))
    first = folder_of("fact:task", "--solver", "rule:Gently")
    write(here / "halved.py", "FACTOR = 0.25\n")
    assert folder_of("fact:task", "--solver", "rule:Gently") != first


def test_only_the_users_own_files_are_read_and_installed_packages_are_named(here):
    write(here / "fact.py", "import json\nimport numpy.linalg\nimport helper\nimport offbeat.core.solver\n")
    write(here / "helper.py", "import torch\ndef late():\n    import nowhere_at_all\n")
    import fact

    found = sources([fact])
    assert [f.name for f in found.files] == ["fact.py", "helper.py"]
    assert found.packages == {"numpy", "torch"}


def test_modules_that_import_each_other_are_read_once(here):
    write(here / "fact.py", "import helper\n")
    write(here / "helper.py", "import fact\n")
    import fact

    assert [f.name for f in sources([fact]).files] == ["fact.py", "helper.py"]


def test_the_versions_of_the_packages_that_a_task_imports_are_recorded(folder_of, here):
    import sklearn

    write(here / "fact.py", TASK.format(imports="import sklearn.datasets", slope="3"))
    run = json.loads(Path(folder_of("fact:task"), "run.json").read_text())
    assert run["versions"]["scikit-learn"] == sklearn.__version__
    assert run["versions"]["torch"] == torch.__version__


def test_a_changed_loss_of_ones_own_is_another_run_though_the_fingerprint_is_the_same(here):
    keys = []
    for factor in (1, 100):
        forget(here)
        write(here / "mine.py", f"def loss(out, target):\n    return {factor} * (out - target).square().mean()\n")
        from mine import loss

        x = torch.linspace(-1, 1, 16)[:, None]
        task = offbeat.task(nn.Linear(1, 1), loss, (x, x), fingerprint="line")
        keys.append(offbeat.train(task, "asgd", 2, budget="4updates", batch=2).path)
    assert keys[0] != keys[1]


def test_other_data_are_another_run_though_the_fingerprint_is_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, keys = torch.linspace(-1, 1, 16)[:, None], []
    for slope in (3.0, 3.0, 4.0):
        task = offbeat.task(lambda: nn.Linear(1, 1), nn.functional.mse_loss, (x, slope * x), fingerprint="line")
        keys.append(offbeat.train(task, "asgd", 2, budget="4updates", batch=2).path)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("more", [(), ("--set", "data.validation=0.25")])
def test_a_task_whose_data_have_changed_is_another_run(folder_of, here, more):
    read = "torch.tensor(float(open('slope.txt').read()))"
    write(here / "fact.py", TASK.format(imports="", slope=read))
    write(here / "slope.txt", "3")
    first = folder_of("fact:task", *more)
    assert folder_of("fact:task", *more) == first
    write(here / "slope.txt", "300")
    assert folder_of("fact:task", *more) != first


SAID = r"shown, not run: .* ended on \d{4}-\d\d-\d\d \d\d:\d\d UTC; run it anew with "


def test_a_run_that_is_shown_says_when_it_was_made_and_how_to_run_it_anew(here, monkeypatch, capsys):
    def shell(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", ["offbeat", "run", "quadratic", "--budget", "20updates", *more])
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr().err

    assert "shown" not in shell()
    assert re.search(SAID + "--again", shell())
    assert re.search(SAID + "--again", shell("--json"))
    assert "shown" not in shell("--again")


def test_python_says_so_too(here, capsys):
    run = offbeat.train("quadratic", budget="20updates")
    assert (run.shown, capsys.readouterr().err) == (False, "")
    run = offbeat.train("quadratic", budget="20updates")
    assert run.shown
    assert re.search(SAID + "again=True", capsys.readouterr().err)


@pytest.mark.parametrize("more", [{}, {"data.validation": 0.25}])
def test_cells_of_comparisons_and_sweeps_are_the_runs_that_their_words_alone_would_be_data_included(
    folder_of, here, more
):
    """The folder of `offbeat run` has its address as its name; cells with the same words must have the same one."""
    write(here / "fact.py", TASK.format(imports="", slope="torch.tensor(float(open('slope.txt').read()))"))
    values = {"task": {"name": "fact:task"}, "data": {"batch": 8}, "budget": {"epochs": 2}}
    words = [word for key, value in more.items() for word in ("--set", f"{key}={value}")]
    for slope in ("3", "300"):
        write(here / "slope.txt", slope)
        alone = [Path(folder_of("fact:task", "--set", f"seed={seed}", *words)).name for seed in (0, 1)]
        compared = comparing.plan(values, ["asgd"], 2, None, None, more)
        swept = plan_sweep(
            {**values, "sweep": {"grid": {k: [v] for k, v in more.items()} or {"solver.name": ["asgd"]}, "seeds": 2}},
            None,
            "grid",
        )
        assert [c.address for c in compared.cells] == [c.address for c in swept.cells] == alone
