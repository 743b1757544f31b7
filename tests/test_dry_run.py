"""What would run: `--dry-run` and `dry_run=True` say the same, and nothing is run or written."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import offbeat
from offbeat.lab.papers.reproducing import plan

GRID = 'task = "quadratic"\ncluster = { workers = 2 }\n[sweep]\nseeds = 2\ngrid = { "optimizer.lr" = [0.1, 0.2] }\n'
CLOCK, PRINTED = "wongpanich2020-allreduce", "wongpanich2020-table1"
"""A recipe of the clock alone, and one that is the paper's numbers alone."""
SAME = {
    "run": (
        ("run", "quadratic", "--solver", "sync", "--workers", 3),
        lambda **d: offbeat.train("quadratic", "sync", 3, **d),
    ),
    "run --out": (("run", "quadratic", "--out", "mine"), lambda **d: offbeat.train("quadratic", out="mine", **d)),
    "compare": (
        ("compare", "quadratic", "--solvers", "sync,asgd", "--seeds", 2, "--budget", "9updates"),
        lambda **d: offbeat.compare("quadratic", "sync,asgd", seeds=2, budget="9updates", **d),
    ),
    "sweep": (("sweep", "grid.toml", "--processes", 1), lambda **d: offbeat.sweep("grid.toml", processes=1, **d)),
    "time": (
        ("time", "--solvers", "sync,asgd", "--workers", 7, "--server", "10Gbps", "--budget", "9s"),
        lambda **d: offbeat.time("sync,asgd", workers=7, server="10Gbps", budget="9s", **d),
    ),
    "time, several": (("time", "--workers", "1..8"), lambda **d: offbeat.time(workers="1..8", **d)),
    "reproduce, clock": (("reproduce", CLOCK), lambda **d: offbeat.reproduce(CLOCK, **d)),
    "reproduce, printed": (("reproduce", PRINTED), lambda **d: offbeat.reproduce(PRINTED, **d)),
}
MEASURED = ("wall_time",)
"""A gradient takes another time each time it is tried."""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(GRID)


def test_the_recipes_are_what_they_are_called():
    assert plan(CLOCK).recipe.clock
    assert not plan(PRINTED).cells


@pytest.mark.parametrize("name", SAME)
def test_the_shell_and_python_say_the_same_and_leave_nothing(name, shell):
    words, call = SAME[name]
    code, out, err = shell(*words, "--dry-run", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    would = call(dry_run=True)
    assert isinstance(would, offbeat.DryRun)
    assert {k: v for k, v in would.items() if k not in MEASURED} == {k: v for k, v in told.items() if k not in MEASURED}
    code, out, _ = shell(*words, "--dry-run")
    said, shown = (text.strip().splitlines() for text in (out, str(would)))
    assert [line[:21] for line in said] == [line[:21] for line in shown]
    assert would._repr_html_().count("<tr>") >= len(would)
    assert [p.name for p in Path().iterdir()] == ["grid.toml"]


def test_what_is_finished_is_counted():
    words = {"grid": {"optimizer.lr": [0.1, 0.2]}, "budget": "9updates", "processes": 1}
    offbeat.sweep("quadratic", seeds=1, out="s", **words)
    would = offbeat.sweep("quadratic", seeds=2, out="s", dry_run=True, **words)
    assert (would["cells"], would["done"], would["to_run"]) == (4, 2, 2)
    assert would["folder"] == "s"


def test_the_folder_is_that_of_the_run():
    would = offbeat.train("quadratic", budget="9updates", dry_run=True)
    run = offbeat.train("quadratic", budget="9updates")
    assert would["folder"] == str(run.path)
    assert offbeat.train("quadratic", out=False, dry_run=True)["folder"] == "none: it stays in memory"


def test_the_configuration_is_one_that_run_takes(shell):
    """Line by line, as it is written: people copy it."""
    text = str(offbeat.train("quadratic", "sync", 3, lr=0.03, budget="9updates", dry_run=True))
    Path("copied.toml").write_text(text.partition("configuration")[2])
    folder = offbeat.train("copied.toml").path
    assert folder == offbeat.train("quadratic", "sync", 3, lr=0.03, budget="9updates").path


def test_objects_and_classes_are_told_too():
    x = torch.linspace(0, 1, 8)[:, None]
    task = offbeat.task(nn.Linear(1, 1), nn.functional.mse_loss, (x, x), name="line")
    would = offbeat.train(task, offbeat.solver("asgd", lr=0.1), 2, batch=2, budget="2epochs", dry_run=True)
    assert (would["task"], would["parameters"], would["gradients"]) == ("line", 2, 8)
    assert "# The task and the solver were given as Python objects" in would["configuration"]
    assert offbeat.compare(task, ["asgd"], 2, batch=2, dry_run=True)["cells"] == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--budget", "3epochs"), "budget must be in updates or virtual seconds here"),
        (("--parameters", "3", "--size", "3B"), "give size (in bytes) or parameters"),
        (("--size", "often"), "size"),
    ],
)
def test_a_dry_run_of_the_clock_refuses_what_the_clock_refuses(flags, said, shell):
    for more in ((), ("--dry-run",)):
        code, out, err = shell("time", *flags, *more)
        assert (code, out) == (2, "")
        assert said in err
