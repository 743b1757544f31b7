"""Cells in processes of this machine.

The parent speaks JSON lines over pipes to processes of its own; nothing listens. What Python gave as objects goes
through the same pipe, pickled, and never to a file. A worker whose parent is gone sees its input end and stops; what
it had checkpointed stays.
"""

import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from offbeat.core.errors import OffbeatError
from offbeat.lab.config import NONE, Objects
from offbeat.lab.studies.cells import Cell, CellWorker, Fate, Inbox, job

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from offbeat.lab.studies.cell_process import main; main()"
)


class Here:
    """A `Place`: so many processes of this machine."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def room(self) -> int:
        return self._processes

    def start(self, inbox: Inbox) -> CellWorker:
        return _Process(inbox)

    def close(self) -> None:
        pass  # processes end with their workers


class _Process:
    """One worker process and what it is doing."""

    def __init__(self, inbox: Inbox) -> None:
        self.cell: Cell | None = None
        self._told: Objects = NONE
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # a terminal sends Ctrl-C to its whole group; here the parent does, once
            )
        except OSError as e:  # too few open files, or processes
            raise OffbeatError(f"a process for the runs cannot be started: {e.strerror}") from None
        inbox.put((self, {"ready": True}))  # what it is given waits in its pipe
        threading.Thread(target=self._listen, args=(inbox,), daemon=True).start()

    def _listen(self, inbox: Inbox) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            inbox.put((self, json.loads(line)))
        inbox.put((self, None))

    def give(self, cell: Cell, again: bool) -> None:
        self.cell = cell
        message, self._told = job(cell, again, self._told), cell.objects
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has just ended, which is the next that is heard of it
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def fate(self) -> Fate:
        try:
            code: int | None = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            code = None
        return Fate(f"its process ended with exit code {code}")

    def end(self, *, hard: bool = False) -> None:
        if hard:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and (hard or pipe is self._process.stdin):
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
