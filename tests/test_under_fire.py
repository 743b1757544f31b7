"""Real processes under fire: whatever their models do to them, it is named, and nothing is left behind."""

import os
import resource
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

import bad_tasks
import offbeat
from bad_tasks import AT, LINGERING, Bad
from harness import Stop
from offbeat import solver
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.local import Fault, Launcher, Local, Options, arena
from offbeat.engines.local import processes as local_processes
from offbeat.engines.ray import whereabouts
from offbeat.engines.ray.last_words import how_it_ended
from offbeat.engines.ray.ray_processes import RayProcesses
from offbeat.engines.real import machine
from offbeat.engines.real.transport import RunError
from offbeat.tasks.quadratic import Quadratic
from processes import LIMIT, alive, descendants, until
from real import ON_ONE_MACHINE, run

pytestmark = pytest.mark.processes
HERE = Path(__file__).parent
ASGD = solver("asgd", lr=0.05)


def line_of(function, mark):
    """The number of the line of a bad deed that has these words."""
    code = function.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    return next(n for n in range(code.co_firstlineno, len(lines)) if mark in lines[n - 1])


def fire(launcher, task, *, workers=1, restarts=1, **given):
    options = Options(quota=20, restarts=restarts)
    return run(launcher, solver("asgd", lr=0.05), workers=workers, task=task, updates=10**9, options=options, **given)


def made_by(launcher, factory, workers):
    """A run whose task is made anew in its processes."""
    task = Quadratic(8)
    feed = Feed(task.size, batch=1, workers=workers, seed=3)
    return Local(task, ASGD, Cluster(workers=workers), feed, seed=3, maker=(factory, ()), launcher=launcher)


def lingering():
    """Processes that a bad task has started."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if LINGERING.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
            except OSError:
                continue
    return {pid for pid in found if alive(pid)}


# -- what a model may do to its worker ---------------------------------------------------------------------------------


def test_a_segfault_is_named_with_worker_batch_and_line(launcher):
    engine = fire(launcher, Bad(bad_tasks.segfault), restarts=0)
    line = line_of(bad_tasks.segfault, "the line that is to be named")
    assert engine.incidents == [f"worker 0 was lost at batch {AT} (SIGSEGV in bad_tasks.py, line {line}); left out"]


def test_a_model_that_ends_its_process_is_named(launcher):
    engine = fire(launcher, Bad(bad_tasks.leave))
    assert engine.incidents == [
        f"worker 0 was lost at batch {AT} (exit code 7); restarted",
        f"worker 0 was lost at batch {2 * AT + 1} (exit code 7); left out",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["on ray"])
def test_a_segfault_is_named_on_a_cluster_too(starter):
    engine = fire(starter, Bad(bad_tasks.segfault), restarts=0)
    line = line_of(bad_tasks.segfault, "the line that is to be named")
    (lost,) = [said for said in engine.incidents if "was lost" in said]
    assert lost == f"worker 0 was lost at batch {AT} (SIGSEGV in bad_tasks.py, line {line}); left out"


def test_how_a_process_of_rays_ended_is_read_from_what_it_left():
    note = (
        'Fatal Python error: Segmentation fault\n\nStack (most recent call first):\n  File "/me/model.py", line 12 in f'
    )
    unknown = "Worker unexpectedly exits with a connection error code 2. (3) crashed due to SIGSEGV"
    assert how_it_ended(f"hello\n{note}", unknown) == "SIGSEGV in model.py, line 12"
    assert how_it_ended("Fatal Python error: Aborted\n", unknown) == "SIGABRT"
    assert how_it_ended("hello", "Worker exits unexpectedly. Worker exits with an exit code 4.") == "exit code 4"
    assert how_it_ended("", "the node was running low on memory") == "killed, out of memory"
    assert how_it_ended("", unknown, out_of_memory=True) == "killed, out of memory"
    assert how_it_ended("", unknown) == "killed, or left without a word"


def test_while_a_machine_is_asked_whether_it_is_there_nobody_waits(monkeypatch):
    """It may take seconds to answer, and the server is told of others meanwhile."""
    processes = object.__new__(RayProcesses)
    processes._lock, processes._gave_up, processes._where = threading.RLock(), set(), whereabouts.Whereabouts()
    processes._where.nodes[0] = "10.0.0.1"
    processes._exits, processes._line, processes._crew = {}, None, types.SimpleNamespace(forget=lambda *_: None)
    processes._doing = {"r": types.SimpleNamespace(rank=0, life=1, how="begins", host=None)}
    free = []

    def take_the_lock() -> None:
        free.append(processes._lock.acquire(timeout=1))
        if free[0]:
            processes._lock.release()

    def gone(_: str) -> bool:
        other = threading.Thread(target=take_the_lock)
        other.start()
        other.join()
        return False

    ray = pytest.importorskip("ray")

    def get(_: str) -> None:
        raise ray.exceptions.ActorDiedError

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(whereabouts, "is_there", gone)
    processes._ended("r")
    assert free == [True]
    assert processes.exit_of("worker", 0) == "its machine 10.0.0.1 was lost"


def test_an_error_names_the_users_line_though_a_library_raised_it(launcher):
    line = line_of(bad_tasks.complain, "raised inside torch")
    with pytest.raises(RunError, match=rf"worker 0 failed at batch {AT}: RuntimeError.*\(bad_tasks.py, line {line}\)"):
        fire(launcher, Bad(bad_tasks.complain))


def test_memory_that_runs_out_is_named(launcher):
    with pytest.raises(RunError, match=rf"worker 0 failed at batch {AT}: out of memory: .*\(bad_tasks.py, line \d+\)"):
        fire(launcher, Bad(bad_tasks.allocate))


def test_a_worker_that_the_kernel_killed_for_want_of_memory_is_named(launcher, monkeypatch):
    counts = iter([4, 5])  # before, and when the worker was lost
    monkeypatch.setattr(local_processes, "times_out_of_memory", lambda: next(counts))
    options = Options(on_loss="leave out", quota=20, faults=(Fault("kill", 3, worker=0),))
    engine = run(launcher, ASGD, workers=1, task=Bad(lambda *_: None), updates=10**9, options=options)
    assert engine.incidents == ["worker 0 was lost at batch 3 (SIGKILL, out of memory); left out"]


def test_how_often_memory_ran_out_is_known_to_the_kernel():
    assert machine.times_out_of_memory() >= 0


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_a_loss_that_is_no_number_is_named(starter):
    class Until(Stop):
        def suspicious(self, loss):
            self.seen = self.engine.suspect
            return loss != loss

    stop = Until()
    run(starter, ASGD, workers=1, task=Bad(bad_tasks.lose_count), stop=stop)
    assert stop.seen == f"worker 0, batch {AT}"


def test_what_a_model_starts_ends_with_the_run(launcher, tmp_path):
    before = lingering()
    engine = fire(launcher, Bad(bad_tasks.linger, str(tmp_path / "note")))
    assert (tmp_path / "note").exists()
    assert engine.incidents == []
    assert lingering() == before


def test_what_a_task_starts_while_it_is_made_harms_nobody_and_ends_with_the_run(launcher):
    before = lingering()
    engine = made_by(launcher, "bad_tasks:making_children", 1)
    try:
        engine.run(Stop(updates=20).watch(engine))
        assert len(lingering() - before) == 1
        engine.finish()
    finally:
        engine.close()
    assert lingering() == before


def test_a_run_that_diverges_says_whose_batch_it_was():
    run = offbeat.train(Bad(bad_tasks.lose_count), "asgd", 1, budget="20updates", out=False)
    assert run.status == "diverged"
    assert f" to nan (worker 0, batch {AT})" in run.why


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import bad_tasks, offbeat
task = bad_tasks.Bad(bad_tasks.linger, sys.argv[2])
offbeat.train(task, "asgd", 1, engine="local", budget="1000s", out=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("who", ["parent", "launcher"])
def test_what_a_model_starts_ends_though_the_run_is_killed(tmp_path, who):
    before, note = lingering(), tmp_path / "note"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(HERE), str(note)], stderr=subprocess.DEVNULL)
    try:
        until(note.exists, "what the model starts")
        until(lambda: len(lingering() - before) == 2, "both of what the model starts")
        launcher = max(descendants(process.pid), key=lambda p: len(descendants(p)))
        os.kill(process.pid if who == "parent" else launcher, signal.SIGKILL)
        process.wait(LIMIT)
        until(lambda: lingering() <= before, "the end of what the model has started")
    finally:
        process.kill()
        process.wait(LIMIT)


FLOOD = """
import re, resource, sys
sys.path.insert(0, sys.argv[1])
import bad_tasks, offbeat
run = offbeat.train(bad_tasks.Bad(bad_tasks.flood), "asgd", 1, engine="local", budget="20updates", out=False)
print(run.status)
# Our own peak, not getrusage's: that begins with the memory of whoever started us.
ours = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(max(ours, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""


@pytest.mark.slow
def test_a_gigabyte_of_words_is_passed_on_without_keeping_it():
    process = subprocess.Popen([sys.executable, "-c", FLOOD, str(HERE)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = 0
    while chunk := os.read(process.stderr.fileno(), 1 << 20):
        said += len(chunk)
    out, _ = process.communicate(timeout=LIMIT)
    status, peak = out.split()
    assert status == b"done"
    assert said > 1 << 30
    assert int(peak) < 1 << 20  # kB: less than was said


# -- too little of everything ------------------------------------------------------------------------------------------


def limited(command, **limits):
    """A command under limits of the kernel's; its exit code and what it says."""

    def limit():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, preexec_fn=limit, check=False)
    return done.returncode, done.stderr.strip().splitlines()


def offbeat_run(tmp_path, *arguments):
    command = [sys.executable, "-m", "offbeat", "run", "quadratic", "--engine", "local", "--budget", "20updates"]
    return [*command, "--out", str(tmp_path / "run"), *arguments]


@pytest.mark.slow
def test_too_few_open_files_are_said_before_anything_starts(tmp_path):
    code, said = limited(offbeat_run(tmp_path, "--workers", "20"), NOFILE=40)
    assert code == 2
    assert said == [
        "offbeat: 20 workers need about 64 open files a process, but only 40 are allowed (ulimit -n): "
        "use fewer workers, or raise the limit"
    ]


@pytest.mark.slow
def test_too_few_open_files_are_said_before_the_first_run_of_a_comparison(tmp_path):
    command = [sys.executable, "-m", "offbeat", "compare", "quadratic", "--engine", "local", "--workers", "2"]
    code, said = limited([*command, "--out", str(tmp_path / "runs")], NOFILE=27)
    assert code == 2
    assert len(said) == 1
    assert "2 workers need about 28 open files a process, but only 27 are allowed (ulimit -n)" in said[0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_too_little_shared_memory_is_said_before_anything_starts(tmp_path):
    code, said = limited(offbeat_run(tmp_path, "--workers", "2"), FSIZE=100_000)
    assert code == 2
    assert said == ["offbeat: cannot get shared memory for 2 workers: [Errno 27] File too large"]


def test_too_little_address_space_is_said_before_anything_starts():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot get shared memory for 4 workers: .*Cannot allocate memory"):
            arena.create(arena.Shape(4, 4 << 20, "float32", 0))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_process_that_cannot_be_started_is_said(launcher):
    engine = made_by(launcher, "bad_tasks:without_processes", 2)
    try:
        with pytest.raises(RunError, match="worker 1 cannot be started: Resource temporarily unavailable"):
            engine.run(Stop(updates=20).watch(engine))
    finally:
        engine.close()


def test_a_launcher_that_cannot_be_started_is_said(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RunError, match=r"processes cannot be started: .*No such file"):
        Launcher()


def test_files_are_counted_by_worker(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 30))
    machine.check_files(3)
    with pytest.raises(ConfigError, match="4 workers need about 32 open files a process, but only 30 are allowed"):
        machine.check_files(4)
