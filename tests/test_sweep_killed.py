"""A sweep whose parent is killed goes on where it was, and ends as one that was not."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

GRID = """
task = { name = "quadratic", noise = 1.0 }
cluster = { workers = 3, compute = "exponential(10ms)" }
budget = { updates = 2500 }
evaluate = { every = "500updates" }

[sweep]
seeds = 2
grid = { "solver.name" = ["sync", "asgd"], "optimizer.lr" = [0.01, 0.02] }
"""


def sweep(folder: Path, out: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "offbeat", "sweep", "grid.toml", "--out", out, "--processes", "2", "--json"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)


def done(folder: Path) -> list[Path]:
    """The weights of cells that say they are done: those are written before it is said."""
    said = [p for p in folder.glob("cells/*/run.json") if json.loads(p.read_text())["status"] == "done"]
    return [p.with_name("weights.safetensors") for p in said]


def members(session: int) -> list[int]:
    """Live processes of a session: what the killed sweep had started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                state, _, _, its, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(its) == session and state != "Z":
                    found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_killed_twice_has_the_table_of_one_that_was_not(tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    assert sweep(tmp_path, "whole").wait(300) == 0
    for least in (1, 4):
        parent = sweep(tmp_path, "killed")
        until = time.monotonic() + 200
        while len(done(tmp_path / "killed")) < least and parent.poll() is None:
            assert time.monotonic() < until, "no cell was finished in time"
            time.sleep(0.01)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(30)
        end = time.monotonic() + 200
        while members(parent.pid):
            assert time.monotonic() < end, "its workers did not end with it"
            time.sleep(0.01)
    before = {p: p.stat().st_mtime_ns for p in done(tmp_path / "killed")}
    assert sweep(tmp_path, "killed").wait(300) == 0
    assert all(p.stat().st_mtime_ns == t for p, t in before.items()), "what was done is not run again"
    keys = ["solver.name", "optimizer.lr", "seed"]
    tables = [pq.read_table(tmp_path / f / "results.parquet").to_pylist() for f in ("whole", "killed")]
    found = [{tuple(r[k] for k in keys): (r["status"], r["params_sha256"]) for r in t} for t in tables]
    assert found[0] == found[1]
    assert len(found[0]) == 8
