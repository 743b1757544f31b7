"""A handful of quick checks from end to end: what no change may break, in a few seconds."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import offbeat
from harness import cluster, mlp_task
from offbeat import cli
from offbeat.solvers import SOLVERS

ALONE = ("plain", "constant-delay")


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["offbeat", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0), capsys.readouterr().out


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_runs_and_its_run_can_be_read_back(name, tmp_path):
    run = offbeat.train("quadratic", name, 1 if name in ALONE else 4, budget="12updates", out=tmp_path / "run")
    assert run.status == "done", run.why
    assert torch.equal(offbeat.Run.load(tmp_path / "run").params, run.params)
    assert not torch.equal(run.params, torch.ones_like(run.params))


def test_any_pool_gives_the_same_bits_with_dropout_and_batch_norm():
    machines = cluster(5, compute="lognormal(10ms,5ms)", delay="20ms@0")
    runs = [
        offbeat.train(mlp_task(lambda: nn.Dropout(0.3), norm=True), "asgd", machines, budget="300samples", batch=8, **o)
        for o in ({"pool": 0, "out": False}, {"pool": 2, "out": False})
    ]
    assert torch.equal(runs[0].params, runs[1].params)
    assert runs[0].trace.equals(runs[1].trace)


def test_a_run_from_the_command_line_is_shown_and_repeated(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    args = ("run", "quadratic", "--workers", 3, "--delay", "30ms@0", "--budget", "20updates", "--json")
    code, out = command(monkeypatch, capsys, *args)
    first = json.loads(out)
    assert (code, first["status"], first["updates"]) == (0, "done", 20)
    assert json.loads(command(monkeypatch, capsys, *args)[1]) == first
    code, toml = command(monkeypatch, capsys, "show", first["run"], "--toml")
    Path("again.toml").write_text(toml)
    again = json.loads(command(monkeypatch, capsys, "run", "again.toml", "--out", "other", "--json")[1])
    assert again["params_sha256"] == first["params_sha256"]


@pytest.mark.parametrize("what", ["solvers", "tasks", "models", "engines"])
def test_the_lists_can_be_printed(what, monkeypatch, capsys):
    code, out = command(monkeypatch, capsys, "list", what)
    assert (code, bool(out)) == (0, True)


def test_an_unknown_name_is_refused_in_one_line():
    with pytest.raises(offbeat.ConfigError, match="did you mean 'asgd'") as caught:
        offbeat.train("quadratic", "agsd", out=False)
    assert "\n" not in str(caught.value)
