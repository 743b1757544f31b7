"""What a command does before its first event: closed streams, full ones, and signals during set-up."""

import errno
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.core import TyperGroup

from offbeat import cli
from offbeat.cli.streams import is_output
from offbeat.lab.studies import cell_process
from offbeat.lab.studies.cells import Cell, Inbox
from offbeat.lab.studies.cells_here import Here

OFFBEAT = str(Path(sys.executable).with_name("offbeat"))
RUN = f"{OFFBEAT} run quadratic --budget 5updates --json"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, timeout=120)


SLOW_TOO = [pytest.param(c, marks=pytest.mark.slow) for c in ("<&- 2>&-", ">&-", "<&- >&- 2>&-")]


@pytest.mark.parametrize("closed", ["2>&-", *SLOW_TOO])
def test_a_closed_stream_changes_nothing(tmp_path, closed):
    done = shell(f"{RUN} {closed}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "done"
    if ">&-" not in closed.replace("2>&-", ""):
        assert json.loads(done.stdout)["status"] == "done"


@pytest.mark.slow
def test_a_full_output_is_one_line_and_the_run_is_kept(tmp_path):
    done = shell(f"{RUN} > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "offbeat: what was done cannot be printed: No space left on device\n",
    )
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "done"


def test_a_file_that_cannot_be_written_is_no_output():
    assert not is_output(OSError(28, "No space left on device", "trace.parquet"))
    assert is_output(OSError(28, "No space left on device"))


# -- too little of what every command needs ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run quadratic", "compare quadratic"])
def test_too_little_address_space_is_said_before_anything_is_loaded(tmp_path, command):
    """Libraries that do not get it end the process themselves, or leave a traceback of an import."""
    done = shell(f"ulimit -v 400000; {OFFBEAT} {command}", tmp_path)
    name = command.split()[0]
    assert (done.returncode, done.stderr) == (
        2,
        f"offbeat: {name} needs about 2GB of address space, but only 409.6MB are allowed (ulimit -v): "
        "raise the limit\n",
    )
    assert not list(tmp_path.iterdir())


STARVED = {
    "not enough memory": [MemoryError(), ImportError("libtorch.so: failed to map segment from shared object")],
    "too many files are open": [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "Too many")],
    "no more threads or processes": [RuntimeError("can't start new thread"), BlockingIOError(errno.EAGAIN, "")],
}


@pytest.mark.parametrize(("what", "error"), [(what, e) for what, errors in STARVED.items() for e in errors])
def test_what_there_is_too_little_of_on_the_way_is_one_line(monkeypatch, capsys, what, error):
    def app(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr().err
    assert end.value.code == 1
    assert told.startswith("offbeat: ")
    assert what in told
    assert told.count("\n") == 1


THREADS = """
import sys, threading
from offbeat import cli

def fails(error):
    raise error

def command():
    for error in (RuntimeError("can't start new thread"), ValueError("a defect")):
        thread = threading.Thread(target=fails, args=(error,), name="drawing")
        thread.start()
        thread.join()

cli.app.command("play")(command)
sys.argv = ["offbeat", "play"]
cli.main()
"""


def test_a_thread_that_dies_for_want_of_something_says_one_line_and_of_a_defect_everything():
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    first, rest = done.stderr.split("\n", 1)
    assert done.returncode == 0
    assert first.startswith("offbeat: the thread drawing has ended: no more threads or processes can be started")
    assert rest.startswith("Exception in thread drawing:")
    assert rest.endswith("ValueError: a defect\n")


def test_a_process_for_runs_that_gets_no_thread_says_so_and_is_no_traceback(monkeypatch):
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    out = io.StringIO()
    cell_process._worker(io.StringIO(), out)
    assert json.loads(out.getvalue()) == {
        "status": "failed",
        "why": "its process cannot start a thread: more processes, ulimit -u?",
    }


@pytest.mark.processes
def test_a_run_that_is_given_to_a_process_that_has_just_ended_has_failed(tmp_path):
    inbox: Inbox = queue.Queue()
    worker = Here(1).start(inbox)
    assert inbox.get()[1] == {"ready": True}
    os.kill(worker._process.pid, signal.SIGKILL)
    assert inbox.get(timeout=60) == (worker, None)
    worker.give(Cell({}, tmp_path), again=False)
    assert worker.fate().why == "its process ended with exit code -9"
    worker.end()


SLOW = """
import time
from offbeat.tasks.quadratic import Quadratic

class Slow(Quadratic):
    def init(self, seed):
        print("setting up", flush=True)
        time.sleep({init})
        return super().init(seed)

def task():
    {task}
    return Slow()
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("the engine is made", signal.SIGTERM),
        ("the task is made", signal.SIGTERM),
        ("the engine is made", signal.SIGINT),
    ],
)
def test_a_signal_during_set_up_is_answered(tmp_path, place, number):
    making = 'print("setting up", flush=True); time.sleep(600)' if place == "the task is made" else "pass"
    (tmp_path / "slow.py").write_text(SLOW.format(init=600, task=making))
    process = subprocess.Popen(
        [OFFBEAT, "run", "slow:task", "--budget", "5updates"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "setting up\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, err) == (128 + number, "offbeat: interrupted\n")


def test_a_signal_before_a_command_has_begun_is_answered(monkeypatch, capsys):
    """While its words are read, which takes a moment on a busy machine."""

    def late(*_, **__):
        signal.raise_signal(signal.SIGTERM)

    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(TyperGroup, "make_context", late)
    monkeypatch.setattr(sys, "argv", ["offbeat", "list", "solvers"])
    try:
        with pytest.raises(SystemExit) as end:
            cli.main()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (end.value.code, capsys.readouterr().err) == (143, "offbeat: interrupted\n")


def test_a_signal_while_workers_are_set_up_does_not_wait_for_all_of_them(tmp_path, monkeypatch):
    """Each of a million workers takes a while; nobody waits for the last of them."""
    import offbeat
    from offbeat.engines.sim.simulator import Sim

    entered = []

    def enter(self, i, x0):
        entered.append(i)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Sim, "_enter", enter)
    with pytest.raises(KeyboardInterrupt):
        offbeat.train("quadratic", "asgd", 1000, budget="5updates", out="run")
    assert len(entered) == 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = offbeat.train("quadratic", "asgd", 1000, budget="5updates", out="run")
    assert (again.status, again.shown) == ("done", False)
