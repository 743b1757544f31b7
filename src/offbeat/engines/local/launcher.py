"""The launcher: a process that imports torch once and forks forkers; one a run, or one for many runs."""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys

from offbeat.engines.local.channel import Channel
from offbeat.engines.local.local_messages import Fork, Forked
from offbeat.engines.real.machine import (
    adopt_orphans,
    allow_files,
    die_with_parent,
    end_children,
    ignore_signals,
    keep_freed_memory,
)
from offbeat.engines.real.transport import Closed, RunError

_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from offbeat.engines.local.launcher import main; "
_IMPORT_SECONDS = 300.0
_END_SECONDS = 10.0


class Launcher:
    """Started from scratch rather than forked from us: we may have threads, and be a notebook."""

    def __init__(self) -> None:
        self._line, theirs = Channel.pair(Forked, Fork)
        code = f"{_START}main({theirs.fileno()}, {os.getpid()}, json.loads(sys.argv[2]))"
        ours = [name for name in sys.modules if name.partition(".")[0] in ("offbeat", "sklearn")]
        self._forked = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, json.dumps(sys.path), json.dumps(ours)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as e:
            raise RunError(f"processes cannot be started: {e}") from None
        finally:
            theirs.close()

    def forker(self, control: Channel, arena_fd: int) -> "ForkerProcess":
        """A new forker, at the other end of `control`."""
        try:
            self._line.send(Fork(), control.fileno(), arena_fd)
            message = self._line.receive(_IMPORT_SECONDS)
        except Closed:
            raise RunError(f"processes cannot be started (exit code {self._process.wait()})") from None
        if message is None:
            raise RunError(f"torch was not imported within {_IMPORT_SECONDS:.0f} s")
        if message.why:
            raise RunError(f"processes cannot be started: {message.why}")
        self._forked = True
        return ForkerProcess(message.pid)

    def close(self) -> None:
        """It ends when its line does, and with it whatever a run has left to it."""
        self._line.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS if self._forked else 0.0)
        self._process.kill()  # and the kernel ends its children
        self._process.wait()


class ForkerProcess:
    """A forker's process, held by a descriptor: its number may be another's after its end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def end(self) -> None:
        """Its line is closed, and it ends by itself, with all that was started below it; if it does not, the kernel
        ends it and its children."""
        if not self._ends():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            self._ends()
        os.close(self._fd)

    def _ends(self) -> bool:
        waiting = select.poll()
        waiting.register(self._fd, select.POLLIN)
        return bool(waiting.poll(_END_SECONDS * 1000))


def main(line_fd: int, guardian: int, modules: list[str]) -> None:
    """The process itself. It imports what its parent has imported, so that those it forks need not."""
    die_with_parent()
    if os.getppid() != guardian:
        return  # it ended before we could ask the kernel
    adopt_orphans()  # of forkers that were lost
    ignore_signals()
    allow_files()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a forker ended
    os.dup2(2, 1)  # what a model prints must not get into --json
    keep_freed_memory()  # and so do those it forks
    line = Channel.of(line_fd, Fork)
    import torch

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # the first optimizer imports half of torch
    for name in modules:
        with contextlib.suppress(Exception):  # whoever needs it will say so
            importlib.import_module(name)
    with contextlib.suppress(Closed):
        while True:
            message, fds = line.receive_with_fds(None, 2)
            assert message is not None
            _fork(line, fds)
    end_children()
    os._exit(0)  # there is nothing to tidy, and an interpreter takes its time


def _fork(line: Channel, fds: list[int]) -> None:
    from offbeat.engines.local import forker as forker

    me = os.getpid()
    try:
        pid = os.fork()
    except OSError as e:
        line.send(Forked(0, str(e)))
    else:
        if pid == 0:
            line.close()
            forker.main(fds[0], fds[1], me)
        line.send(Forked(pid))
    for fd in fds:
        os.close(fd)
