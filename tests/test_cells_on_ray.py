"""Runs of a sweep or comparison, spread over a Ray cluster: the same store, and a crash costs one of them."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from offbeat import cli
from offbeat.core.errors import ConfigError, StoreError
from offbeat.folders.copies import Change, apply, changes, contents
from offbeat.folders.run_files import RunFiles
from offbeat.lab.config import make
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.trust import check_trusted
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.places import Where
from processes import until

GRID = """
task = { name = "quadratic", noise = 1.0 }
cluster = { workers = 3, compute = "exponential(10ms)" }
budget = { updates = %d }
evaluate = { every = "500updates" }

[sweep]
grid = { "solver.name" = ["sync", "asgd"], "optimizer.lr" = [0.01, 0.02] }
"""
KEYS = ["solver.name", "optimizer.lr", "seed"]
SMALL = {
    "task": {"name": "quadratic", "noise": 1.0},
    "cluster": {"workers": 2},
    "budget": {"updates": 40},
    "evaluate": {"every": "10updates"},
    "record": {"saves_per_epoch": 0},
}


def snapshot(folder):
    """What is in a folder, but for who holds it."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "lock")
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


# -- a folder and its copy ----------------------------------------------------------


def test_a_copy_goes_through_every_state_of_the_original(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    seen = 0

    def follow(change):
        nonlocal seen
        seen += 1
        apply(there, change)
        assert snapshot(there) == snapshot(here)

    config = make(SMALL)
    with changes(here, follow):
        execute(build(config), here, pool=0, checkpoint_seconds=0.0)
    assert seen > 10
    assert "weights.safetensors" in snapshot(there)
    with changes(here, follow):
        execute(build(config), here, pool=0, checkpoint_seconds=0.0, again=True)
    assert snapshot(there) == snapshot(here)


def test_a_run_goes_on_from_a_copy_of_its_folder_to_the_same_bits(tmp_path):
    whole = execute(build(make(SMALL)), tmp_path / "whole", pool=0)
    states = []

    def keep(change):
        states.append(contents(tmp_path / "cut"))

    with changes(tmp_path / "cut", keep):
        execute(build(make(SMALL)), tmp_path / "cut", pool=0, checkpoint_seconds=0.0)
    for n in range(0, len(states), max(1, len(states) // 12)):
        again = tmp_path / f"again{n}"
        again.mkdir()
        for change in states[n]:
            apply(again, change)
        assert execute(build(make(SMALL)), again, pool=0).summary["params_sha256"] == whole.summary["params_sha256"]


@pytest.mark.parametrize("name", ["../evil", "notes.txt", "parts/../../evil", "lock", "saves/x.py", "/etc/motd"])
def test_only_what_a_run_makes_is_written_or_deleted(name, tmp_path):
    for data in (b"x", None):
        with pytest.raises(StoreError, match="is no file of a run"):
            apply(tmp_path, Change(name, data))
    apply(tmp_path, Change(name, folder=True))
    assert list(tmp_path.iterdir()) == []


# -- words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"on": "moon"}, "unknown place"),
        ({"cpus": 2}, "no effect unless runs are computed on ray"),
        ({"on": "ray", "cpus": 0}, "cpus must be a number above 0"),
        ({"on": "ray", "cpus": float("nan")}, "cpus must be a number above 0"),
        ({"on": "ray", "processes": 0}, "processes must be a number from 1"),
    ],
)
def test_a_place_that_cannot_be_is_refused(words, why):
    with pytest.raises(ConfigError, match=why):
        Where(**words)


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_real_runs_are_not_spread(engine):
    cell = Cell({"engine": engine}, Path("x"))
    with pytest.raises(ConfigError, match=f"engine '{engine}' is not simulated"):
        Where("ray").side_by_side([cell])
    assert Where().side_by_side([cell]) == 1


def test_an_address_where_nobody_answers_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(GRID % 10)
    monkeypatch.setattr(sys, "argv", ["offbeat", "sweep", "grid.toml", "--on", "ray", "--address", "127.0.0.1:1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "no Ray answers at 127.0.0.1:1" in capsys.readouterr().err


# -- with a Ray of their own --------------------------------------------------------


def sweep(folder, *words):
    command = [sys.executable, "-m", "offbeat", "sweep", "grid.toml", "--json", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def results(folder):
    table = pq.read_table(folder / "results.parquet").to_pylist()
    return {tuple(row[k] for k in KEYS): (row["status"], row["params_sha256"]) for row in table}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_a_sweep_on_ray_is_the_sweep_here(tmp_path):
    (tmp_path / "grid.toml").write_text(GRID % 500)
    for words in (["--out", "here"], ["--out", "there", "--on", "ray", "--processes", "2"]):
        code, _, err = finish(sweep(tmp_path, *words))
        assert code == 0, err
    assert results(tmp_path / "here") == results(tmp_path / "there")
    for cell in (tmp_path / "here" / "cells").iterdir():
        mine, other = snapshot(cell), snapshot(tmp_path / "there" / "cells" / cell.name)
        assert mine.keys() == other.keys()
        assert mine["trace.parquet"] == other["trace.parquet"]
        assert mine["weights.safetensors"] == other["weights.safetensors"]
    code, _, err = finish(sweep(tmp_path, "--out", "there", "--on", "ray", "--address", "127.0.0.1:1"))
    assert code == 0, "where all is done, no cluster is needed"
    assert "shown, not run: 4 of 4" in err


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_a_sweep_on_ray_goes_on_from_where_its_cells_were(how, tmp_path):
    (tmp_path / "grid.toml").write_text(GRID % 1000)
    driver = sweep(tmp_path, "--out", "s", "--on", "ray", "--processes", "2")
    begun = tmp_path / "s" / "cells"
    until(lambda: any(begun.glob("*/weights.safetensors")) or driver.poll() is not None, "a cell to end")
    until(lambda: sum(1 for _ in begun.glob("*/run.json")) > 2 or driver.poll() is not None, "another to begin")
    assert driver.poll() is None, finish(driver)
    driver.send_signal(how)
    code, _, err = finish(driver)
    assert code == (130 if how is signal.SIGINT else -signal.SIGKILL), err
    done = {p: p.stat().st_mtime_ns for p in begun.glob("*/weights.safetensors")}
    if how is signal.SIGINT:
        states = [json.loads(p.read_text())["status"] for p in begun.glob("*/run.json")]
        assert set(states) <= {"done", "interrupted"}, "what had begun was saved"
    for words in (["--out", "s", "--on", "ray", "--processes", "2"], ["--out", "whole"]):
        code, _, err = finish(sweep(tmp_path, *words))
        assert code == 0, err
    assert all(p.stat().st_mtime_ns == t for p, t in done.items()), "what was done is not run again"
    assert results(tmp_path / "s") == results(tmp_path / "whole")


DEADLY = """
import os, signal
from offbeat import named_task

def make(deadly: bool = False):
    if deadly and os.environ.get("RAY_JOB_ID"):
        os.kill(os.getpid(), signal.SIGKILL)
    return named_task("quadratic")
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_a_crash_costs_one_cell_and_code_of_the_folder_is_found_and_trusted(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(DEADLY)
    grid = 'task.name = "deadly:make"\ncluster.workers = 2\nbudget.updates = 50\n'
    grid += '[sweep]\nlist = [{ "optimizer.lr" = 0.1 }, { "task.deadly" = true }, { "optimizer.lr" = 0.2 }]\n'
    (tmp_path / "grid.toml").write_text(grid)
    code, out, err = finish(sweep(tmp_path, "--out", "s", "--on", "ray", "--processes", "1"))
    assert code == 1, err
    rows = json.loads(out)
    assert sorted(row["status"] for row in rows) == ["done", "done", "failed"]
    assert any(row["status"] == "failed" and "its process on machine" in row["why"] for row in rows)
    one = next(row["folder"] for row in rows if row["status"] == "done")
    monkeypatch.chdir(tmp_path)
    check_trusted(RunFiles.open(Path(one)), trust=False)
