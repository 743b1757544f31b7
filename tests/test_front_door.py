"""One place to import from, and the same words in Python as in a shell."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

import offbeat
from folders import make
from offbeat import cli
from offbeat.core.errors import ConfigError
from offbeat.lab.engines import entry
from offbeat.solvers import solver_class

ADDING = Path(__file__).parent.parent / "docs" / "adding.md"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_report_is_a_function_whether_or_not_its_package_was_imported():
    code = "import inspect, offbeat; first = offbeat.report; import offbeat.report.pages.build as b; "
    code += "assert first is b.report and inspect.signature(offbeat.report) == inspect.signature(first)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "imported",
    [
        "import offbeat",
        "import offbeat, offbeat.report",
        "import offbeat.report.pages.build, offbeat",
        "from offbeat import report; import offbeat.report.read, offbeat",
        "from offbeat import *; import offbeat, offbeat.report as package; assert package([run]).title",
        "import offbeat, importlib; importlib.import_module('offbeat.report'); importlib.reload(offbeat.report)",
    ],
)
def test_a_report_is_made_whatever_was_imported(imported, tmp_path):
    run = make(tmp_path / "run")
    code = (
        f"run = {str(run)!r}; {imported}; offbeat.report([run], 'page.html'); from offbeat import report; report([run])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert (tmp_path / "page.html").exists()


def test_importing_offbeat_loads_nothing_heavy():
    code = "import sys, offbeat; dir(offbeat); assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_name_is_there_and_typed():
    tree = ast.parse(Path(offbeat.__file__).read_text())
    typed = {a.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names}
    assert set(offbeat.__all__) == typed - {None}
    for name in offbeat.__all__:
        found = getattr(offbeat, name)
        assert found.__name__.rpartition(".")[2] == name
        assert callable(found)


def test_all_that_the_page_on_solvers_imports_comes_from_one_place():
    needed = set()
    for code in re.findall(r"```python\n(.*?)```", ADDING.read_text(), flags=re.S):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("offbeat"):
                needed |= {a.name for a in node.names}
    assert {"Solver", "Grad", "Call", "Reply", "Applied", "Stepped"} <= needed | set(offbeat.__all__)
    assert needed <= set(offbeat.__all__)


def test_the_version_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["offbeat", "--version"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert (stop.value.code, capsys.readouterr().out) == (0, f"offbeat {offbeat.__version__}\n")
    package = Path(__file__).parent.parent / "pyproject.toml"
    assert tomllib.loads(package.read_text())["project"]["version"] == offbeat.__version__


WORDS = {
    "optimizer": ("optimizer.name", "adam"),
    "lr": ("optimizer.lr", 0.001),
    "schedule": ("schedule.kind", "cosine"),
    "warmup": ("schedule.warmup", "0.5epochs"),
    "clip": ("solver.clip", 1.5),
    "scale_lr": ("scale.lr", "inverse"),
    "scale_batch": ("scale.batch", "inverse"),
    "scale_workers": ("scale.workers", 2),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_the_same_run_as_its_key(word):
    key, value = WORDS[word]
    said, usual = {"budget": "64samples", "cluster": 2, "batch": 8}, offbeat.train
    if word == "scale_workers":  # which alone would have no effect
        said["scale_lr"] = "inverse"
    assert usual("digits", **said, **{word: value}).path == usual("digits", **said, settings={key: value}).path


def test_all_the_words_at_once_train():
    words = {word: value for word, (_, value) in WORDS.items()}
    run = offbeat.train("digits", "asgd", 2, budget="64samples", batch=8, **words, out=False)
    assert run.status == "done"
    assert run.config["optimizer"] == {"name": "adam", "lr": 0.001}


def test_a_factory_of_optimizers_is_sent_to_the_solver():
    with pytest.raises(ConfigError, match=r"optimizer must be a name.*offbeat\.solver\(\"asgd\", optimizer="):
        offbeat.train("quadratic", optimizer=lambda params: None)


def test_words_for_the_optimizer_do_not_change_a_solver_that_has_its_own():
    with pytest.raises(ConfigError, match=r"optimizer\.lr cannot be set: the solver was given as an object"):
        offbeat.train("quadratic", offbeat.solver("asgd", lr=0.1), lr=0.2)


# -- mistakes are told in one line, with what is right -----------------------------------------------------------------


class Misspelt:
    def on_evaluate(self, metrics):
        """Never called: it is on_evaluation."""


class Both(Misspelt):
    def on_apply(self, row):
        """Right, but the other one is not."""


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (
            print,
            "a callback must be an object with on_apply(row), on_evaluation(metrics) or both, got a function: print",
        ),
        (lambda row: None, "got a function: <lambda>"),
        (Misspelt, "got a class: Misspelt"),
        (
            Misspelt(),
            "unknown hook of callback Misspelt 'on_evaluate' (did you mean 'on_evaluation'?); known: on_apply",
        ),
        (Both(), "unknown hook of callback Both 'on_evaluate'"),
        (object(), "a callback must be an object with on_apply(row), on_evaluation(metrics) or both, got object"),
    ],
)
def test_a_callback_that_would_never_be_called_is_refused(callback, said):
    with pytest.raises(ConfigError) as refusal:
        offbeat.train("quadratic", callbacks=[callback], out=False)
    assert said in str(refusal.value)


def test_a_missing_extra_is_named_before_anything_runs(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "numba" else find(name, *a))
    with pytest.raises(ConfigError, match=r"task 'word2vec' needs numba: pip install 'offbeat\[word2vec\]'"):
        offbeat.train("word2vec")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("async", "asgd"),
        ("ASGD", "asgd"),
        ("hogwild!", "hogwild"),
        ("synchronous", "sync"),
        ("gossip", "ad-psgd"),
        ("ddp", "allreduce"),
    ],
)
def test_other_names_of_a_solver_lead_to_it(typed, meant):
    with pytest.raises(ConfigError, match=f"unknown solver '{typed}' .did you mean '{meant}'"):
        offbeat.train("quadratic", typed)


@pytest.mark.parametrize(("typed", "meant"), [("learning_rate", "lr"), ("epochs", "budget")])
def test_other_names_of_an_argument_lead_to_it(typed, meant):
    with pytest.raises(ConfigError, match=f"unknown argument of train '{typed}' .did you mean '{meant}'"):
        offbeat.train("quadratic", **{typed: 2})


def test_an_engine_whose_extra_is_missing_names_it_and_is_listed_with_that_reason(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "zmq" else find(name, *a))
    with pytest.raises(ConfigError, match=r"ray engine .* needs zmq: pip install 'offbeat\[ray\]'"):
        offbeat.train("quadratic", engine="ray", budget="5updates", out=False)
    assert entry("ray").why_not(solver_class("asgd")) == "it needs zmq: pip install 'offbeat[ray]'"


def test_one_worker_is_one_worker(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["offbeat", "run", "quadratic", "--workers", "1", "--budget", "5updates"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "/ 1 worker /" in capsys.readouterr().out


def loss(out, target):
    return (out - target).square().mean()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_half_precision_is_refused_in_one_line(dtype):
    x = torch.zeros(4, 1, dtype=dtype)
    with pytest.raises(ConfigError, match=f"parameters must be float32 or float64, got {str(dtype)[6:]}$"):
        offbeat.task(nn.Linear(1, 1).to(dtype), loss, (x, x))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named_in_one_line(tmp_path, monkeypatch):
    x = torch.zeros(4, 1)
    said = r"the model asks for a GPU, and offbeat computes on the CPU: leave out \.to\(\"cuda\"\)"
    with pytest.raises(ConfigError, match=said):
        offbeat.task(lambda: nn.Linear(1, 1).to("cuda"), loss, (x, x))
    (tmp_path / "on_gpu.py").write_text(
        "import torch\ndef task():\n    return torch.nn.Linear(1, 1).to('cuda'), torch.nn.MSELoss(), (1, 2)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="asks for a GPU"):
        offbeat.train("on_gpu:task")
