"""The stress itself: it is there, it is reproducible, and it reaches every process."""

import os
import signal
import subprocess
import sys

import adversity
import pytest
from adversity import SEAMS, Adversity, Seam, counts

from processes import alive, until
from stress import storm
from stress.plugin import drawn

ROOT = storm.ROOT


def naps(seed, role, count=200):
    """What befalls somebody at each seam, in the first calls; outside of any test."""
    made = Adversity(str(seed), ROOT)
    made.role = role
    return {seam.what: [made.next(seam) for _ in range(count)] for seam in SEAMS}


def test_every_seam_names_a_function_of_the_package():
    adversity.check()


@pytest.mark.parametrize("name", ["ServerLoop.no_such", "NoSuch.run"])
def test_a_seam_that_is_not_there_is_an_error(monkeypatch, name):
    gone = Seam("nothing happens", "offbeat.engines.real.server_loop", name, adversity.stall)
    monkeypatch.setattr(adversity, "SEAMS", (*SEAMS, gone))
    with pytest.raises(AttributeError, match=f"'nothing happens': offbeat.engines.real.server_loop has no {name}"):
        adversity.check()


def test_every_test_has_its_turn_in_as_many_seeds_as_there_are_shares():
    names = [f"tests/test_faults.py::test_{k}" for k in range(300)]
    chosen = [{name for name in names if drawn(name, seed, 3)} for seed in (5, 6, 7)]
    assert sorted(name for some in chosen for name in some) == sorted(names)
    assert all(60 < len(some) < 140 for some in chosen)


def test_naps_are_a_function_of_the_seed_and_of_who_takes_them():
    assert naps(1, "worker 0, 1") == naps(1, "worker 0, 1")
    assert naps(1, "worker 0, 1") != naps(2, "worker 0, 1")
    assert naps(1, "worker 0, 1") != naps(1, "worker 1, 1")


def test_naps_are_short_against_anybody_s_patience():
    """A sleeper who is taken for dead would be the stress's own doing: tests have patience for 10 s at least."""
    for seed in range(50):
        for what, found in naps(seed, "server 1").items():
            assert max(found) <= 0.4, what


RUNS = """
import sys
sys.path.insert(0, sys.argv[1])
from harness import Stop
from offbeat import solver
from offbeat.core.task import Point
from offbeat.engines.local import Launcher
from offbeat.engines.threads import Threads
from real import run
import torch

launcher = Launcher()
assert run(launcher, solver("sync", lr=0.1), updates=100).updates == 100
launcher.close()

class InPlace:
    name, size = "in place", 10**6
    def init(self, seed): return Point(torch.zeros(3))
    def sweep(self, *_): return 1.0, 1

threads = Threads(InPlace(), None, lambda work: 0.1, workers=2, seed=0)
threads.run(Stop(updates=100).watch(threads))
threads.close()
"""


def certain(seed):
    """Whether these runs cannot but meet everything of the table, whoever is faster.

    A hundred rounds of a barrier of two are two hundred calls to the server and a hundred steps of each worker; the
    parent hears at least once that they are done; the threads train a hundred stretches.
    """
    server, worker, parent, threads = (naps(seed, r, 100) for r in ("server 1", "worker 0, 1", "parent", "threads"))
    return all(
        (
            any(server["the server stalls"]),
            any(worker["a worker is slow"]),
            any(worker["a message is sent late"]),
            parent["the parent stalls"][0],
            any(threads["a thread stalls"]),
        )
    )


@pytest.mark.processes
def test_under_stress_adversity_reaches_every_process(tmp_path):
    """A run of processes and one of threads: everything of the table befalls somebody."""
    seed = next(filter(certain, range(1000)))
    path = os.pathsep.join([str(ROOT / "tests" / "stress"), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, adversity.VARIABLE: f"{seed}:{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", RUNS, str(ROOT / "tests")], env=env, timeout=200, check=False)
    assert done.returncode == 0
    assert 0 not in counts(tmp_path).values()


def test_busy_loops_end_whatever_happens():
    loops = []
    with pytest.raises(ZeroDivisionError):
        fail_beside(loops)
    assert [loop.returncode for loop in loops] == [-signal.SIGKILL] * 2


def fail_beside(loops):
    with storm.busy(2) as started:
        loops += started
        assert all(loop.poll() is None for loop in loops)
        _ = 1 // 0


def test_busy_loops_end_with_whoever_started_them():
    """Even by SIGKILL, which nobody can catch."""
    code = "import os, signal; from stress import storm\n"
    code += "with storm.busy(1) as loops: print(loops[0].pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    loop = int(done.stdout)
    until(lambda: not alive(loop), "the end of the loop")
