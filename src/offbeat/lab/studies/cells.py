"""Many runs side by side: workers that take one configuration after another. A crash costs one cell.

Where the workers are is a `Place`: processes of this machine (`cells_here.py`), or those of a Ray cluster
(`cells_on_ray.py`). What a worker does with a cell is the same everywhere (`cell_work.py`).
"""

import base64
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from offbeat.core.errors import ConfigError
from offbeat.lab.config import NONE, Config, Objects
from offbeat.lab.runs.plan import Plan, build

_POLL = 0.5
_MOVES = 5  # how often a cell may begin anew elsewhere because its machine was lost


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
    moves: int = 0
    """How often it lost its machine."""

    def plan(self) -> Plan:
        """The run, ready to start; what is written in the script that asks is known by its address, and only there."""
        return replace(build(Config.model_validate(self.config), self.objects), key=self.address)


class Fate(NamedTuple):
    """How a worker ended."""

    why: str
    blameless: bool = False
    """Its machine was lost: the cell goes on elsewhere."""


class CellWorker(Protocol):
    """Takes one cell after another. What it says comes through the inbox: that it is ready, shares, an outcome."""

    cell: Cell | None

    def give(self, cell: Cell, again: bool) -> None: ...

    def fate(self) -> Fate:
        """How it ended, if it is known to have ended."""

    def interrupt(self) -> None:
        """Its cell is to be saved and left."""

    def end(self, *, hard: bool = False) -> None: ...


Message = dict[str, Any] | Exception | None
"""Of a worker: what it says; an error that concerns all cells; None: it is gone."""
Inbox = queue.Queue[tuple[CellWorker, Message]]


class Place(Protocol):
    """Where cells are computed."""

    def room(self) -> int:
        """How many workers there may be now."""

    def start(self, inbox: Inbox) -> CellWorker:
        """Another worker; it says when it is ready."""

    def close(self) -> None: ...


class _Running:
    """Cells at work."""

    def __init__(self, cells: Sequence[Cell], place: Place, again: bool) -> None:
        self.place, self.again = place, again
        self.waiting = [c for c in cells if c.outcome is None][::-1]
        self.workers: list[CellWorker] = []
        self.inbox: Inbox = queue.Queue()

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(w.cell is not None for w in self.workers)

    def start_more(self) -> None:
        """As many workers as there is room, and work, for."""
        at_work = sum(w.cell is not None for w in self.workers)
        while len(self.workers) < min(self.place.room(), len(self.waiting) + at_work):
            self.workers.append(self.place.start(self.inbox))

    def hear(self) -> None:
        for worker, message in _messages(self.inbox):
            if isinstance(message, Exception):
                raise message
            if worker in self.workers:
                self._hear(worker, message)

    def _hear(self, worker: CellWorker, message: dict[str, Any] | None) -> None:
        cell = worker.cell
        if message is None:
            self._part_with(worker)
        elif cell is not None and "share" in message:
            cell.share = message["share"]
            return
        elif cell is not None:
            cell.outcome, cell.share, worker.cell = message, 1.0, None
        if worker in self.workers and worker.cell is None and self.waiting:
            # A finished run that cannot be known to be of the same objects is no run of this cell.
            cell = self.waiting.pop()
            worker.give(cell, self.again or cell.address is None)

    def _part_with(self, worker: CellWorker) -> None:
        self.workers.remove(worker)
        cell, worker.cell = worker.cell, None
        if cell is not None:
            fate = worker.fate()
            if fate.blameless and cell.moves < _MOVES:
                cell.moves, cell.share = cell.moves + 1, 0.0
                self.waiting.append(cell)
            else:
                cell.outcome, cell.share = {"status": "failed", "why": fate.why}, 1.0
        worker.end()


def run_cells(
    cells: Sequence[Cell],
    place: Place,
    *,
    again: bool = False,
    on_change: Callable[[], None] = lambda: None,
) -> bool:
    """Runs every cell; outcomes are put into them. False when interrupted: what is done is kept."""
    running = _Running(cells, place, again)
    check_objects(running.waiting)
    interrupted = False
    try:
        while running.busy:
            try:
                running.start_more()
                running.hear()
                on_change()
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                running.waiting.clear()
                for w in running.workers:
                    if w.cell is not None:
                        w.interrupt()
    except BaseException:
        for w in running.workers:
            w.end(hard=True)
        raise
    for w in running.workers:
        w.end()
    return not interrupted


def _messages(inbox: Inbox) -> Iterator[tuple[CellWorker, Message]]:
    try:
        yield inbox.get(timeout=_POLL)
        while True:
            yield inbox.get_nowait()
    except queue.Empty:
        return


# -- what is sent to a worker -----------------------------------------------------------------------------------------


def job(cell: Cell, again: bool, told: Objects) -> dict[str, Any]:
    """A cell in plain values; its objects, unless they were told before, as text."""
    message = {"config": cell.config, "folder": str(cell.folder), "address": cell.address, "again": again}
    return message if cell.objects is told else {**message, "objects": pickled(cell.objects)}


def check_objects(cells: Sequence[Cell]) -> None:
    """What cannot be sent is said before anything starts."""
    every = {id(c.objects): c.objects for c in cells}.values()
    tasks = {id(o.task): Objects(o.task) for o in every}.values()
    for objects in (*tasks, *(replace(o, task=None) for o in every)):
        pickled(objects)


def pickled(objects: Objects) -> str:
    """Objects for a process of ours."""
    import cloudpickle

    try:
        return base64.b64encode(cloudpickle.dumps(objects)).decode("ascii")
    except Exception as e:
        what = " or ".join(n for n, o in (("task", objects.task), ("solver", objects.kind)) if o is not None)
        raise ConfigError(f"the {what} cannot be sent to another process: {e}") from None
