"""`offbeat.compare`, `sweep`, `report` and `time`: what the shell can, Python can, in the same words."""

import gc
import re
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
import torch
from torch import nn

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.engines.sim import Sim
from offbeat.lab.arguments import Words
from offbeat.lab.config.words import KEYS
from offbeat.lab.studies import cell_work
from offbeat.lab.studies.cell_work import CellWork


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# As in a notebook, the code has no file: its classes and functions are known to this process alone.
NOTEBOOK = """
import offbeat, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x):
        print("a model may print")
        return self.line(x)

class Gently(offbeat.ParameterServer):
    line, paper = "ASGD, gently", "-"

    def __init__(self, opt, *, factor: float = 0.5):
        self.factor = factor
        super().__init__(opt, correct=lambda s, arrival: (arrival.gradient.value, self.factor))

x = torch.linspace(-1, 1, 64)[:, None]
task = offbeat.task(Net, lambda out, y: ((out - y) ** 2).mean(), (x, 3 * x), (x, 3 * x), name="line", fingerprint="x")
bold = offbeat.solver(Gently, lr=0.1, factor=0.9, label="bold")
words = {"budget": "4updates", "batch": 8, "evaluate_every": "1updates", "processes": 1}
found = offbeat.compare(task, ["asgd", Gently, bold], 2, settings={"Gently:solver.factor": 0.25}, **words)
assert [row["solver"] for row in found.table.to_pylist()] == ["asgd", "Gently", "bold"]
assert [run.config["solver"].get("factor") for run in found.runs] == [None, 0.25, "0.9"]
assert "No winner" in found.verdict[0] and "<p>No winner" in found._repr_html_()
assert isinstance(found.runs[0].model(), Net)
swept = offbeat.sweep(task, Gently, 2, grid={"solver.factor": [0.1, 0.9]}, **words)
assert swept.best()[0]["solver.factor"] == 0.9, swept.best()
assert swept.table.num_rows == 2 and "solver.factor" in swept._repr_html_()
offbeat.report([found, swept, found.runs[0]], "all.html")
found.plot("picture.svg")
assert list(offbeat.time(["asgd", Gently], 4, budget="20updates").timed) == ["asgd", "Gently"]
# Nobody can know whether code without a file is the same: it is not found again, but run anew.
once, twice = (offbeat.compare(task, [Gently], 2, lr=lr, out=out, **words) for lr, out in ((0.1, "c"), (0.2, "c")))
assert once.folder == twice.folder and twice.runs[0].config["optimizer"]["lr"] == 0.2
assert offbeat.compare(task, [Gently], 2, **words).folder != offbeat.compare(task, [Gently], 2, **words).folder
"""


@pytest.mark.slow
def test_tasks_models_and_solvers_of_a_notebook_work_in_all_of_them():
    done = subprocess.run([sys.executable, "-"], input=NOTEBOOK, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path("all.html").exists()
    assert Path("picture.svg").exists()


class Printing(nn.Linear):
    def forward(self, x):
        print('{"status": "done"}')  # it must not be taken for what our own process says
        return super().forward(x)


def test_a_comparison_of_objects_runs_in_processes():
    x = torch.linspace(-1, 1, 32)[:, None]
    task = offbeat.task(Printing(1, 1), nn.functional.mse_loss, (x, x), (x, x), name="line")
    found = offbeat.compare(task, ["asgd"], 2, budget="4updates", batch=4, processes=1)
    assert [run.summary["updates"] for run in found.runs] == [4]
    assert found.folder.name.endswith("-1"), "without a fingerprint it gets a new folder each time"


def test_the_same_words_in_a_shell_are_the_same_comparison_and_sweep(shell, capsys):
    words = {"budget": "20updates", "latency": "1ms", "lr": 0.02, "processes": 1}
    found = offbeat.compare("quadratic", "sync,asgd", 2, seeds=1, target="loss=0.5", **words)
    capsys.readouterr()
    flags = ("--workers", 2, "--budget", "20updates", "--latency", "1ms", "--set", "optimizer.lr=0.02")
    code, out, err = shell("compare", "quadratic", "--solvers", "sync,asgd", *flags, "--target", "loss=0.5")
    assert code == 0, err
    shown = f"shown, not run: 2 of 2 runs in {found.folder}, the last of "
    assert re.search(rf"^{re.escape(shown)}\d{{4}}-\d\d-\d\d \d\d:\d\d UTC; run all anew with --again$", err, re.M), err
    assert out.startswith("\n".join(found.verdict))
    Path("s.toml").write_text(
        'task = "quadratic"\nbudget.updates = 9\n[sweep]\ngrid = {"optimizer.lr" = [0.01, 0.1]}\n'
    )
    swept = offbeat.sweep("s.toml", latency="1ms", processes=1)
    assert swept.folder == Path("sweeps/s")
    assert "run all anew with" not in capsys.readouterr().err
    code, out, err = shell("sweep", "s.toml", "--latency", "1ms")
    assert "2 of 2 runs in sweeps/s" in err
    assert out.startswith(str(swept))
    assert f"optimizer.lr={swept.best()[0]['optimizer.lr']}" in out.splitlines()[1]


def test_the_clock_alone_says_the_same_in_python(shell):
    code, out, _ = shell("time", "--solver", "sync,asgd", "--workers", 5, "--compute", "10ms", "--compute", "30ms@0")
    found = offbeat.time("sync,asgd", settings={"cluster.workers": 5}, compute=["10ms", "30ms@0"])
    assert code == 0
    for row in found.summaries:
        assert f"{row['samples_per_virtual_second']:,.4g}" in out
    assert found.table["solver"].to_pylist() == ["sync", "asgd"]


def test_python_has_every_word_of_the_shell():
    """All but what is an argument of its own."""
    assert set(Words.__annotations__) >= set(KEYS) - {"solver", "workers", "seed"}


@pytest.mark.parametrize("function", ["compare", "sweep"])
def test_a_misspelt_word_lists_those_that_are_known(function):
    with pytest.raises(ConfigError, match=rf"unknown argument of {function} 'bugdet' \(did you mean 'budget'\?\)"):
        getattr(offbeat, function)("quadratic", bugdet="5updates")


def test_what_cannot_be_compared_is_told_in_one_line():
    for words, said in (
        ({"solvers": []}, "a comparison needs a solver"),
        ({"solvers": [offbeat.solver("asgd"), "asgd"]}, "each solver once, got 'asgd,asgd'.*label="),
        ({"seeds": 0}, "seeds must be a number of seeds from 1, or a list of them, got 0"),
        ({"processes": 0}, "processes must be a number from 1, got 0"),
        ({"settings": {"easgd:optimizer.lr": 1}}, "unknown solver of this comparison 'easgd'"),
        ({"target": "often"}, "often"),
    ):
        with pytest.raises(ConfigError, match=said):
            offbeat.compare("quadratic", **{"solvers": "asgd", **words})
    assert not Path("comparisons").exists()
    with pytest.raises(ConfigError, match=r"has no \[sweep\] section with a grid or a list"):
        offbeat.sweep("quadratic")
    with pytest.raises(ConfigError, match=r"must be an \.html file, got 'x\.png'"):
        offbeat.report("runs", "x.png")


def test_what_cannot_be_sent_to_another_process_is_named_before_anything_starts():
    x = torch.zeros(4, 1)
    task = offbeat.task(nn.Linear(1, 1), nn.functional.mse_loss, (x, x), name="line")
    task.numbers = (n for n in range(3))
    with pytest.raises(ConfigError, match="the task cannot be sent to another process"):
        offbeat.compare(task, ["asgd"], 2, batch=2)


# -- the cluster, from one place ---------------------------------------------------------------------------------------


@pytest.fixture
def fitted():
    Path("fitted.toml").write_text('[cluster]\nworkers = 3\ncompute = "20ms"\nlatency = "1ms"\n')
    return "fitted.toml"


def test_a_file_describes_the_cluster_for_every_command_and_flags_have_the_last_word(fitted, shell):
    run = offbeat.train("quadratic", cluster=fitted, budget="9updates", delay="5ms@0")
    assert run.config["cluster"]["workers"] == 3
    assert run.config["cluster"]["delay"] == ["5ms@0"]
    flags = ("--cluster", fitted, "--delay", "5ms@0")
    code, _, err = shell("run", "quadratic", "--budget", "9updates", *flags)
    assert code == 0
    assert f"shown, not run: {run.path}" in err, "the same words are the same run"
    Path("s.toml").write_text('task = "quadratic"\n[sweep]\ngrid = {"optimizer.lr" = [0.01]}\n')
    for command in (("compare", "quadratic", "--dry-run"), ("sweep", "s.toml", "--dry-run")):
        assert shell(*command, *flags)[0] == 0
    _, out, _ = shell("time", *flags, "--workers", 7, "--dry-run")
    assert re.search(r"cluster.workers +7\n", out)
    assert re.search(r"cluster.latency +1ms\n", out)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.toml", "cannot read nowhere.toml"),
        ("twelve", r"unknown cluster 'twelve'; known: a TOML file with a \[cluster\] section, a number of workers"),
        ("empty.toml", r"empty.toml has no \[cluster\] section"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(name, said, shell):
    Path("empty.toml").write_text("seed = 1\n")
    for command in (("run", "quadratic"), ("compare", "quadratic"), ("time",)):
        code, out, err = shell(*command, "--cluster", name)
        assert (code, out) == (2, "")
        assert re.search(said, err)


def test_what_a_long_cell_has_held_is_given_back_before_the_next_one(monkeypatch, tmp_path):
    """A dataset of hundreds of megabytes stays alive otherwise, for each of hundreds of cells."""

    def engines():
        return sum(type(o) is Sim for o in gc.get_objects())

    def do(seed):
        config = {"task": {"name": "digits"}, "budget": {"updates": 3}, "cluster": {"workers": 2}, "seed": seed}
        done = CellWork(lambda said: None).do(
            {"folder": str(tmp_path / str(seed)), "config": config, "address": None, "again": False}
        )
        assert done["status"] == "done"

    gc.collect()
    gc.disable()
    try:
        before = engines()
        monkeypatch.setattr(cell_work, "_LONG", inf)
        do(0)
        assert engines() > before, "it is in a cycle, or this test says nothing"
        monkeypatch.setattr(cell_work, "_LONG", 0.0)
        do(1)
        assert engines() == before
    finally:
        gc.enable()
