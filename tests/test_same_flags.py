"""The same flags on `run`, `compare`, `sweep` and `time`, and the same words in Python."""

from inspect import signature
from pathlib import Path

import pytest

import offbeat
from offbeat.cli import runs, studies, sweeps, timing
from offbeat.core.errors import ConfigError


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


EVERYWHERE = ["engine", "cluster", "workers", "batch", "budget", "compute", "delay", "latency", "bandwidth", "settings"]
OF_RUNS = ["global_batch", "until", "data", "address", "saves_per_epoch", "on_divergence", "again"]


def test_the_same_flags_are_on_every_command():
    for command in (runs.run, studies.compare, sweeps.sweep, timing.time):
        has = set(signature(command).parameters)
        assert has >= {*EVERYWHERE, "dry_run", "as_json"}, command.__name__
        if command is not timing.time:
            assert has >= set(OF_RUNS), command.__name__


def test_a_sweep_takes_the_words_of_a_run(shell):
    Path("s.toml").write_text('task = "quadratic"\n[sweep]\ngrid = {"optimizer.lr" = [0.01, 0.1]}\n')
    flags = ("--solver", "sync", "--batch", 3, "--until", "loss=0.001", "--seeds", 2, "--on-divergence", "continue")
    code, _, err = shell("sweep", "s.toml", "--budget", "3updates", *flags, "--processes", 1)
    assert code == 0, err
    words = {"batch": 3, "until": "loss=0.001", "on_divergence": "continue", "budget": "3updates", "processes": 1}
    swept = offbeat.sweep("s.toml", solver="sync", seeds=2, **words)
    configs = [offbeat.Run.load(cell.folder).config for cell in swept.cells]
    assert len(configs) == 4
    assert {c["solver"]["name"] for c in configs} == {"sync"}
    assert {c["data"]["batch"] for c in configs} == {3}
    assert {c["budget"]["until"] for c in configs} == {"loss=0.001"}
    assert {c["seed"] for c in configs} == {0, 1}
    assert shell("sweep", "s.toml", "--budget", "3updates", *flags)[2].startswith("shown, not run: 4 of 4 runs")


@pytest.mark.parametrize(
    ("flags", "words", "key"),
    [
        (("--batch", 4), {"batch": 4}, "data.batch"),
        (("--budget", "4updates"), {"budget": "4updates"}, "budget.updates"),
        (("--set", "optimizer.lr=1"), {"settings": {"optimizer.lr": 1}}, "optimizer.lr"),
        (("--solver", "sync"), {"solver": "sync"}, "solver.name"),
    ],
)
def test_what_is_swept_cannot_be_given_as_well(flags, words, key, shell):
    grid = '"data.batch" = [2], "budget.updates" = [1], "optimizer.lr" = [0.1], "solver.name" = ["asgd"]'
    Path("s.toml").write_text(f'task = "quadratic"\n[sweep]\ngrid = {{{grid}}}\n')
    code, out, err = shell("sweep", "s.toml", *flags)
    assert (code, out, err) == (2, "", f"offbeat: {key} is swept, and cannot have a value of its own as well\n")
    with pytest.raises(ConfigError, match=f"{key} is swept"):
        offbeat.sweep("s.toml", **words)
    assert not Path("sweeps").exists()


def test_no_seeds_are_refused_by_a_sweep(shell):
    with pytest.raises(ConfigError, match="seeds must be a number of seeds from 1, or a list of them, got 0"):
        offbeat.sweep("quadratic", grid={"optimizer.lr": [0.1]}, seeds=0)


def test_the_clock_alone_has_one_engine(shell):
    assert shell("time", "--engine", "sim", "--budget", "9updates")[0] == 0
    code, out, err = shell("time", "--engine", "local")
    said = "the clock alone is simulated (engine sim), got 'local': it computes nothing that local could run"
    assert (code, out, err) == (2, "", f"offbeat: {said}\n")
    with pytest.raises(ConfigError, match="the clock alone is simulated"):
        offbeat.time(engine="ray")
    with pytest.raises(ConfigError, match="unknown engine 'loacl'"):
        offbeat.time(engine="loacl")


def test_a_comparison_takes_the_data_of_its_task(shell):
    code, out, err = shell("compare", "word2vec", "--data", "nowhere.txt", "--solvers", "plain", "--dry-run")
    assert (code, out) == (2, "")
    assert "nowhere.txt" in err
