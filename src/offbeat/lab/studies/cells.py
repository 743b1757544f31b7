"""Many runs side by side: worker processes that take one configuration after another. A crash costs one cell.

The parent speaks JSON lines over pipes to processes of its own; nothing listens. What Python gave as objects goes
through the same pipe, pickled, and never to a file. A worker whose parent is gone sees its input end and stops; what
it had checkpointed stays.
"""

import base64
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.lab.config import NONE, Config, Objects
from offbeat.lab.runs.plan import Plan, build

_POLL = 0.5
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from offbeat.lab.studies.cell_process import main; main()"
)


@dataclass
class Cell:
    """One run of many: its configuration, its folder and, at the end, its outcome."""

    config: dict[str, Any]
    """Complete, in plain values."""
    folder: Path
    keys: dict[str, Any] = field(default_factory=dict)
    """The values that set this cell apart."""
    address: str | None = None
    """That of its run; None where objects do not tell what they are, and no earlier run can be known to be the same."""
    objects: Objects = NONE
    outcome: dict[str, Any] | None = None
    found: str | None = None
    """When it ended, if it was found finished; None: it is run."""
    share: float = 0.0
    """How much of it is done."""

    def plan(self) -> Plan:
        """The run, ready to start; what is written in the script that asks is known by its address, and only there."""
        return replace(build(Config.model_validate(self.config), self.objects), key=self.address)


class _Process:
    """One worker process and what it is doing."""

    def __init__(self, inbox: "queue.Queue[tuple[_Process, dict[str, Any] | None]]") -> None:
        self.cell: Cell | None = None
        self._told: Objects = NONE
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a terminal sends Ctrl-C to its whole group; here the parent passes it on, once
        )
        threading.Thread(target=self._listen, args=(inbox,), daemon=True).start()

    def _listen(self, inbox: "queue.Queue[tuple[_Process, dict[str, Any] | None]]") -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            inbox.put((self, json.loads(line)))
        inbox.put((self, None))

    def give(self, cell: Cell, **options: Any) -> None:
        self.cell = cell
        message = {"config": cell.config, "folder": str(cell.folder), "address": cell.address, **options}
        if cell.objects is not self._told:
            message["objects"], self._told = pickled(cell.objects), cell.objects
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def exit_code(self) -> int | None:
        try:
            return self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return None

    def end(self, *, hard: bool = False) -> None:
        if hard:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and (hard or pipe is self._process.stdin):
                pipe.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def run_cells(
    cells: Sequence[Cell],
    processes: int,
    *,
    again: bool = False,
    on_change: Callable[[], None] = lambda: None,
) -> bool:
    """Runs every cell; outcomes are put into them. False when interrupted: what is done is kept."""
    waiting = [c for c in cells if c.outcome is None][::-1]
    _check_objects(waiting)
    inbox: queue.Queue[tuple[_Process, dict[str, Any] | None]] = queue.Queue()
    workers: list[_Process] = []
    interrupted = False
    try:
        workers += [_start(waiting, inbox, again) for _ in range(min(processes, len(waiting)))]
        while any(w.cell is not None for w in workers):
            try:
                for worker, message in _messages(inbox):
                    _receive(worker, message, workers, waiting, inbox, again)
                on_change()
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                waiting.clear()
                for w in workers:
                    w.interrupt()
    except BaseException:
        for w in workers:
            w.end(hard=True)
        raise
    for w in workers:
        w.end()
    return not interrupted


def _messages(inbox: "queue.Queue[Any]") -> Iterator[tuple[_Process, dict[str, Any] | None]]:
    try:
        yield inbox.get(timeout=_POLL)
        while True:
            yield inbox.get_nowait()
    except queue.Empty:
        return


def _start(waiting: list[Cell], inbox: "queue.Queue[Any]", again: bool) -> _Process:
    worker = _Process(inbox)
    _give(worker, waiting.pop(), again)
    return worker


def _give(worker: _Process, cell: Cell, again: bool) -> None:
    """A finished run that cannot be known to be of the same objects is no run of this cell."""
    worker.give(cell, again=again or cell.address is None)


def _check_objects(cells: Sequence[Cell]) -> None:
    """What cannot be sent is said before anything starts."""
    every = {id(c.objects): c.objects for c in cells}.values()
    tasks = {id(o.task): Objects(o.task) for o in every}.values()
    for objects in (*tasks, *(replace(o, task=None) for o in every)):
        pickled(objects)


def pickled(objects: Objects) -> str:
    """Objects for the pipe to a process of ours."""
    import cloudpickle

    try:
        return base64.b64encode(cloudpickle.dumps(objects)).decode("ascii")
    except Exception as e:
        what = " or ".join(n for n, o in (("task", objects.task), ("solver", objects.kind)) if o is not None)
        raise ConfigError(f"the {what} cannot be sent to another process: {e}") from None


def _receive(
    worker: _Process,
    message: dict[str, Any] | None,
    workers: list[_Process],
    waiting: list[Cell],
    inbox: "queue.Queue[Any]",
    again: bool,
) -> None:
    cell = worker.cell
    if message is None:  # the process is gone
        workers.remove(worker)
        if cell is not None:
            code = worker.exit_code()
            cell.outcome = {"status": "failed", "why": f"its process ended with exit code {code}"}
            cell.share = 1.0
            worker.cell = None
        worker.end()
        if waiting:
            workers.append(_start(waiting, inbox, again))
        return
    assert cell is not None
    if "share" in message:
        cell.share = message["share"]
        return
    cell.outcome, cell.share, worker.cell = message, 1.0, None
    if waiting:
        _give(worker, waiting.pop(), again)
