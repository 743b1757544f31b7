"""One table of wrong settings, through every way in: `train`, `run`, `compare` and `sweep` refuse the same."""

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import offbeat
from offbeat import cli
from offbeat.core.errors import ConfigError
from offbeat.lab.config import to_toml

INF, NAN, HUGE = float("inf"), float("nan"), 10**400
MUON = {"optimizer.name": "muon"}
# The settings, and what is said of them.
WRONG: list[tuple[dict[str, Any], str]] = [
    # typed to the bottom
    ({"optimizer.foreach": "30ms@all"}, "optimizer.foreach must be true or false, got '30ms@all'"),
    ({"optimizer.fused": 1}, "optimizer.fused must be true or false, got 1"),
    ({"optimizer.weight_decay": NAN}, "optimizer.weight_decay must be a finite number, got nan"),
    ({"optimizer.dampening": INF}, "optimizer.dampening must be a finite number, got inf"),
    ({"optimizer.name": "adam", "optimizer.betas": [0.9]}, "optimizer.betas must be a list of 2 numbers, got [0.9]"),
    ({"optimizer.name": "adam", "optimizer.betas": [NAN, 0.9]}, "optimizer.betas must be a list of 2 numbers"),
    ({"optimizer.name": 3}, "optimizer.name must be a valid string, got 3"),
    ({"optimizer.multipliers": {"x": {"lr": -1}}}, "must be greater than or equal to 0, got -1"),
    ({"optimizer.multipliers": {"bias": {"lr": 2}}}, "unknown parameter in optimizer.multipliers 'bias'; known: x"),
    ({"optimizer.first": {"name": 3, "for": "9samples"}}, "unknown optimizer '3'"),
    ({"optimizer.first": {"name": "adam", "for": "9samples", "eps": NAN}}, "optimizer.eps must be a finite number"),
    ({"solver.clip": {}}, "solver.clip must be a finite number, above 0, got {}"),
    ({"solver.clip_at": ["x"]}, "unknown solver.clip_at \"['x']\""),
    ({"solver.name": "async-diloco", "solver.speeds": INF}, "solver.speeds must be a list of numbers, got inf"),
    ({"solver.name": "diloco", "solver.outer": 3}, "solver.outer must be text, got 3"),
    ({"task.noise": INF}, "task.noise must be a finite number, got inf"),
    ({"task.curvature": True}, "task.curvature must be a finite number, got True"),
    ({"task.batch": INF}, "unknown option of task 'quadratic' 'batch'"),
    # bounded where they would overflow or never end
    ({"solver.clip": HUGE}, "solver.clip is a number of 1,329 bits"),
    ({"task.dim": 10**10}, "dim from 1 to 100,000,000"),
    ({"solver.name": "hogwild", "solver.chunks": 10**9}, "solver.chunks must be a whole number of at most 1,000,000"),
    ({"solver.name": "hogwild", "solver.chunks": 200_000}, "solver.chunks must be a whole number of at most 100,000"),
    ({"solver.name": "rennala", "solver.S": 10**9}, "solver.S must be a whole number of at most 1,000,000"),
    ({"budget.updates": 2**60}, "budget.updates must be less than or equal to 9007199254740992"),
    ({"evaluate.every": "1e300updates"}, "of at most 9,007,199,254,740,992"),
    ({"scale.lr": "linear", "scale.workers": 10**9}, "scale.workers must be less than or equal to 1000000"),
    ({"schedule.kind": "exponential", "schedule.gamma": 1e308}, "schedule.gamma must be less than or equal to 10"),
    ({"cluster.compute": "empirical(" + "1," * 100_000 + "1)"}, "empirical takes at most 100,000 values"),
    ({"optimizer.lr": [[[[[[[[[1]]]]]]]]]}, "'optimizer.lr' is nested too deeply"),
    # of no effect
    ({"schedule.power": 2.0}, "schedule.power has no effect unless schedule.kind is 'polynomial'"),
    ({"schedule.gamma": 0.5}, "schedule.gamma has no effect"),
    ({"schedule.floor": 0.5}, "schedule.floor has no effect"),
    ({"schedule.over": "9samples"}, "schedule.over has no effect"),
    ({"schedule.milestones": ["9samples"]}, "schedule.milestones has no effect"),
    ({"scale.workers": 4}, "scale.workers has no effect without scale.lr or scale.batch"),
    ({"data.global_batch": 8, "scale.batch": "inverse"}, "scale.batch has no effect with data.global_batch"),
    ({"local.on_loss": "leave out"}, "local.on_loss has no effect unless engine is 'local', 'ray' or 'debug'"),
    ({"local.restarts": 3}, "local.restarts has no effect unless engine is 'local', 'ray' or 'debug'"),
    ({"engine": "debug", "local.patience": "5s"}, "local.patience has no effect unless engine is 'local' or 'ray'"),
    ({"data.partition": "split"}, "data.partition has no effect on task 'quadratic', which has no training set"),
    ({"data.sampling": "replacement"}, "data.sampling has no effect on task 'quadratic'"),
    ({"record.saves_per_epoch": 3}, "record.saves_per_epoch has no effect on task 'quadratic'"),
    ({"solver.clip_at": "server"}, "solver.clip_at has no effect without solver.clip"),
    ({"solver.name": "dc-asgd", "solver.decay": 0.5}, "solver.decay has no effect without solver.adaptive"),
    ({"solver.name": "delay-adaptive", "solver.smoothness": 3.0}, "solver.smoothness has no effect"),
    ({"solver.name": "diloco", "solver.outer": "adam", "solver.outer_momentum": 0.5}, "outer_momentum has no effect"),
    ({"solver.name": "ea-wild", "solver.grouping": "random"}, "solver.grouping has no effect with solver.group=1"),
    ({"optimizer.name": "adam", "optimizer.capturable": True}, "optimizer.capturable cannot be set"),
    ({"optimizer.differentiable": True}, "optimizer.differentiable cannot be set"),
    # what is seen only when task, solver and engine meet
    (
        {"cluster.workers": 2, "solver.name": "backup", "solver.backups": 2},
        "solver.backups must be below the number of workers, 2, got 2",
    ),
    ({"engine": "threads", "solver.name": "hogwild"}, "cannot train in place"),
    ({"engine": "debug", "solver.name": "hogwild"}, "the debug engine cannot run hogwild"),
    ({"engine": "debug", "cluster.latency": "1ms"}, "cluster.latency is for simulation"),
    ({"engine": "local", "cluster.allreduce": "hierarchical(2)"}, "cluster.allreduce is for simulation"),
    ({"engine": "debug", "record.diagnose_every": 3}, "record.diagnose_every needs engine sim"),
    (MUON, "the optimizer refuses these parameters"),
    ({**MUON, "solver.name": "ad-psgd"}, "the optimizer refuses these parameters"),
    ({"solver.name": "diloco", "solver.outer": "muon"}, "the optimizer refuses these parameters"),
    ({"budget.until": "accuracy=0.5"}, "target accuracy=0.5 cannot be reached: task 'quadratic' measures loss"),
    (
        {"cluster.workers": 1_000_000, "task.dim": 10**5},
        "1,000,000 simulated workers of asgd with vectors of 800kB need",
    ),
    ({"cluster.workers": 3, "data.global_batch": 8}, "data.global_batch 8 cannot be shared equally by 3 workers"),
]


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "app", get_command(cli.app))

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["offbeat", *args])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


def typed(value: Any) -> str:
    return to_toml({"v": [value]}).strip()[5:-1]


@pytest.mark.parametrize(("settings", "said"), WRONG, ids=lambda v: str(v)[:50])
def test_every_way_in_refuses_it_with_the_same_words(settings, said, shell):
    with pytest.raises(ConfigError) as refusal:
        offbeat.train("quadratic", settings=settings, out=False)
    line = str(refusal.value)
    assert said in line
    assert "\n" not in line
    assert len(line) < 1200
    sets = [f"--set={key}={typed(value)}" for key, value in settings.items()]
    code, out, err = shell("run", "quadratic", *sets)
    assert (code, out, err) == (2, "", f"offbeat: {line}\n")
    solver = settings.get("solver.name", "asgd")
    code, out, err = shell("compare", "quadratic", "--solvers", solver, *(s for s in sets if "solver.name" not in s))
    assert (code, out, err) == (2, "", f"offbeat: {line}\n")
    cell = ", ".join(f'"{key}" = {typed(value)}' for key, value in settings.items())
    Path("sweep.toml").write_text(f'task = "quadratic"\n[sweep]\nlist = [{{ {cell} }}]\n')
    code, out, err = shell("sweep", "sweep.toml")
    assert (code, out) == (2, "")
    assert err.startswith("offbeat: cell ")
    assert err.endswith(f": {line}\n")
    assert "budget.until" in settings or not Path("runs").exists()  # what it measures is seen when it has begun
    assert not Path("sweeps").exists()
    assert not Path("comparisons").exists()


@pytest.mark.parametrize("seeds", [10**8, 10**30])
def test_more_cells_than_anybody_means_are_refused_at_once(seeds, shell):
    said = f"offbeat: a sweep or comparison has at most 100,000 cells, got {seeds:,}\n"
    Path("sweep.toml").write_text(f'task = "quadratic"\n[sweep]\nseeds = {seeds}\nlist = [{{}}]\n')
    assert shell("sweep", "sweep.toml", "--dry-run") == (2, "", said)
    assert shell("compare", "quadratic", "--solvers", "asgd", "--seeds", str(seeds), "--dry-run") == (2, "", said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("x = " + "{b = " * 3000 + "1" + "}" * 3000, "nested too deeply"),
        ("seed = " + "9" * 5000, "holds a number that no setting can hold"),
        (".".join("a" * 3000) + " = 1", "nested too deeply"),
    ],
    ids=["lists", "tables", "a number", "a key"],
)
def test_a_file_that_goes_too_far_is_one_line(text, said, shell):
    Path("deep.toml").write_text(f"task.name = 'quadratic'\n{text}\n")
    for command in (["run", "deep.toml"], ["config", "deep.toml"]):
        code, out, err = shell(*command)
        assert (code, out) == (2, "")
        assert said in err
        assert len(err) < 1200
    code, _, err = shell("run", "quadratic", f"--set=seed={'9' * 5000}")
    assert (code, err) == (2, "offbeat: --set seed is a number that no setting can hold\n")


def test_a_run_that_is_refused_in_python_alone_is_one_line():
    for settings in ({"seed": 10**5000}, {3: 4}, {"optimizer": {3: 4}}, {"cluster.compute": [None]}):
        with pytest.raises(ConfigError) as refusal:
            offbeat.train("quadratic", settings=settings, out=False)
        assert "\n" not in str(refusal.value)
