"""Any configuration is accepted, or refused in one line; and the answer is the same in Python and in a shell."""

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import offbeat
from fuzz import WORDS, configurations
from harness import Stop
from offbeat import cli
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.lab import api
from offbeat.lab.config import to_toml
from offbeat.lab.engines import build_engine
from offbeat.lab.runs import execute as executing
from offbeat.lab.runs.plan import Plan
from offbeat.lab.runs.ready import try_out

FAST, LONG = 150, 10_000
ACCEPTED = "accepted"


class _AcceptedError(OffbeatError):
    """Instead of the run."""


@pytest.fixture
def no_runs(monkeypatch, tmp_path):
    """Both ways in come as far as the run itself; what they would run is kept."""
    plans: list[Plan] = []

    def execute(plan: Plan, *_: Any, **__: Any) -> None:
        try_out(plan)
        plans.append(plan)
        raise _AcceptedError(ACCEPTED)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "execute", execute)
    monkeypatch.setattr(executing, "execute", execute)
    monkeypatch.setattr(cli, "app", get_command(cli.app))  # the tree of commands, made once
    return plans


def in_a_file(values: dict[str, Any], number: int) -> tuple[str | None, dict[str, Any]]:
    """Of every second configuration, what it says of the cluster in a file of its own, as `calibrate` writes one."""
    found = {k.removeprefix("cluster."): v for k, v in values.items() if k.startswith("cluster.")}
    if number % 2 or not found:
        return None, values
    lines = (f"{k} = {to_toml({'v': [v]}).strip()[5:-1]}" for k, v in found.items())
    Path("cluster.toml").write_text("[cluster]\n" + "\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return "cluster.toml", {k: v for k, v in values.items() if not k.startswith("cluster.")}


def by_train(task: str, values: dict[str, Any], cluster: str | None) -> str:
    """What `train` says: with its own arguments for every second key that has one."""
    words = {k: v for n, (k, v) in enumerate(values.items()) if k in WORDS and n % 2}
    rest = {k: v for k, v in values.items() if k not in words}
    try:
        offbeat.train(task, cluster=cluster, **{WORDS[k]: v for k, v in words.items()}, settings=rest, out=False)
    except (ConfigError, _AcceptedError) as e:
        return str(e)
    raise AssertionError("it went on")


def by_run(task: str, values: dict[str, Any], cluster: str | None, monkeypatch, capsys) -> tuple[int, str]:
    """The exit code of `offbeat run` and what it says."""
    sets = [f"--set={k}={to_toml({'v': [v]}).strip()[5:-1]}" for k, v in values.items()]  # in a list: no section
    monkeypatch.setattr(sys, "argv", ["offbeat", "run", task, *sets, *(["--cluster", cluster] if cluster else [])])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    assert out == ""
    return int(stop.value.code or 0), err


def begin(plan: Plan) -> None:
    """The first events of a simulation that was accepted, if it is a small one."""
    if plan.engine != "sim" or plan.cluster.workers > 20 or plan.batch > 1000:
        return
    with suppress(OffbeatError):  # what is wrong with its values may be seen only when they are used
        engine = build_engine(plan, 0)
        try:
            engine.run(Stop(ticks=40).watch(engine))
            engine.finish()
        finally:
            engine.close()


def go_through(seed: int, count: int, plans: list[Plan], monkeypatch, capsys) -> int:
    """How many were accepted."""
    accepted = 0
    warnings.simplefilter("ignore")  # torch's, about its own options
    for number, (task, values) in enumerate(configurations(seed, count)):
        plans.clear()
        cluster, values = in_a_file(values, number)
        said = by_train(task, values, cluster)
        assert said, values
        assert "\n" not in said, values
        code, err = by_run(task, values, cluster, monkeypatch, capsys)
        assert err.count("\n") == 1, (values, err)
        assert err.startswith("offbeat: "), values
        assert (said == ACCEPTED) == (err == f"offbeat: {ACCEPTED}\n"), (values, said, err)
        assert code == (1 if said == ACCEPTED else 2)
        if said == ACCEPTED:
            accepted += 1
            assert plans[0].config == plans[1].config, values
            if number % 10 == 0:
                begin(plans[0])
    return accepted


def test_every_configuration_has_one_answer(no_runs, monkeypatch, capsys):
    accepted = go_through(1, FAST, no_runs, monkeypatch, capsys)
    assert 0.1 * FAST < accepted < 0.9 * FAST, "a fuzzer that only refuses, or only accepts, shows little"


@pytest.mark.slow
def test_every_configuration_of_ten_thousand_has_one_answer(no_runs, monkeypatch, capsys):
    count = int(os.environ.get("OFFBEAT_FUZZ", LONG))
    seed = int(os.environ.get("OFFBEAT_FUZZ_SEED", 2))
    assert go_through(seed, count, no_runs, monkeypatch, capsys) > 0.1 * count
