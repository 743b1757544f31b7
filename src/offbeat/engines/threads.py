"""Threads of this process train one vector in place, without a lock: Hogwild! as fast as a task's own kernel goes.

For tasks that can `sweep`: train in place over a stretch of their data, with the interpreter lock released. A row of
the trace is a stretch; inside it the vector is read and written sample by sample, so that there are no versions and
staleness is null. Threads meet after a few stretches each: evaluations and checkpoints see a vector at rest, and one
thread gives the same bits every time.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import ceil, inf
from threading import Lock
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from offbeat.core.effects import Applied
from offbeat.core.errors import ConfigError
from offbeat.core.seeds import key64
from offbeat.core.solver import Solver
from offbeat.core.sparse import dense
from offbeat.core.task import Point, Task
from offbeat.core.trace import APPLIED, IN_FLIGHT, Row
from offbeat.engines.pool import Pool
from offbeat.engines.protocol import Watcher

STRETCH = 2000  # samples of one row of the trace
_TOGETHER = 50  # stretches of a thread before all of them meet


@runtime_checkable
class Sweeper(Protocol):
    """What this engine asks of a task, beside being one."""

    def sweep(self, x: Any, start: int, stop: int, rate: float, key: int) -> tuple[float, int]:
        """Trains x in place on samples [start, stop); (loss, count) summed over a part of them, for the record."""


class Stretch(NamedTuple):
    """Samples [start, stop) of a pass over the data."""

    draw: int
    start: int
    stop: int
    work: int  # samples that come before it, over all passes


class Threads:
    """One run: construct (or restore), then `run()`."""

    clock: ClassVar[str] = "wall"
    incidents: ClassVar[tuple[str, ...]] = ()
    machines: ClassVar[tuple[str, ...]] = ()
    suspect: ClassVar[str] = ""
    waiting: ClassVar[str] = ""
    lost_updates: ClassVar[int] = 0
    revisions: ClassVar[int] = 0
    journal: list[tuple[float, str, int, int]] | None = None

    def __init__(
        self, task: Task, solver: Solver, rate: Callable[[float], float], *, workers: int, seed: int, threads: int = 0
    ) -> None:
        """`rate` is the learning rate over the work clock; `threads` are for evaluations."""
        if not isinstance(task, Sweeper) or task.size is None:
            raise ConfigError(f"the threads engine is for tasks that train in place (word2vec), not for {task.name!r}")
        self._sweep, self._size = task.sweep, task.size
        self.task: Task = task
        self.solver, self._rate, self._seed = solver, rate, seed
        self._x = dense(task.init(seed).x).clone()
        self.now = self.served = self.queued = 0.0  # no server, no messages
        self.bytes = 0
        self.updates = self.samples = self.samples_applied = 0
        self.next_samples: float = inf
        self.next_updates: float = inf
        self.deadline, self.loss_limit = inf, -inf
        self.rows: list[tuple[Any, ...]] = []
        self._computing = [0.0] * workers
        self._lock = Lock()
        self.pool = Pool(lambda job: None, threads)  # type: ignore[arg-type, return-value]  # maps only
        self._threads = ThreadPoolExecutor(workers)

    def run(self, watcher: Watcher) -> str:
        while True:
            began = time.perf_counter()
            stretches = self._next_stretches()
            done = self._train(stretches, began)
            self.now += time.perf_counter() - began
            for row in sorted(done, key=lambda r: r.draw):
                if not self._note(row, watcher):
                    return "watcher"
            if self.now >= self.deadline:
                return "seconds"
            if (self.samples >= self.next_samples or self.updates >= self.next_updates) and watcher.mark():
                return "watcher"
            if watcher.tick():
                return "watcher"

    def _next_stretches(self) -> list[Stretch]:
        """Up to the next mark, and few enough that nobody waits long for progress."""
        count = min(_TOGETHER * len(self._computing), self.next_updates - self.updates)
        found: list[Stretch] = []
        for stretch in islice(stretches_from(self.updates, self._size), max(1, int(count))):
            if found and stretch.work >= self.next_samples:
                break
            found.append(stretch)
        return found

    def _train(self, stretches: list[Stretch], began: float) -> list[Row]:
        """All of them, each by the first thread that is free."""
        waiting = iter(stretches)

        def work(worker: int) -> list[Row]:
            rows: list[Row] = []
            while True:
                with self._lock:
                    stretch = next(waiting, None)
                if stretch is None:
                    return rows
                rows.append(self._train_one(worker, stretch, began))

        if len(self._computing) == 1:
            return work(0)
        return [row for rows in self._threads.map(work, range(len(self._computing))) for row in rows]

    def _train_one(self, worker: int, stretch: Stretch, began: float) -> Row:
        samples = stretch.stop - stretch.start
        key = key64(self._seed, "sweep", 0, stretch.draw)
        started = time.perf_counter()
        loss, count = self._sweep(self._x, stretch.start, stretch.stop, self._rate(stretch.work + samples), key)
        ended = time.perf_counter()
        self._computing[worker] += ended - started
        times = (self.now + started - began, self.now + ended - began)
        ends = (APPLIED, loss / count if count else None, samples, *times, None, None)
        return Row(times[1], worker, 0, stretch.draw, None, None, None, None, True, *ends)

    def _note(self, row: Row, watcher: Watcher) -> bool:
        if row.loss is not None and not row.loss <= self.loss_limit and watcher.suspicious(row.loss):
            self.rows.append(row._replace(applied=False, outcome=IN_FLIGHT))
            return False
        self.rows.append(row)
        self.samples += row.samples
        self.samples_applied += row.samples
        self.updates += 1
        return True

    # -- for those who look on ----------------------------------------------------------------------------------

    @property
    def point(self) -> Point:
        return Point(self._x.clone())

    @property
    def lost_share(self) -> None:
        """Nobody counts what races undo."""

    @property
    def optimizer_options(self) -> None:
        """There is no torch optimizer."""

    @property
    def lr(self) -> float:
        return self._rate(self.samples)

    def finish(self) -> None:
        """Nothing is in flight between meetings."""

    def close(self) -> None:
        self._threads.shutdown()
        self.pool.close()

    def show_applied(self, look: Callable[[Applied], None]) -> bool:
        return False  # there are no gradients apart from their application

    def breakdown(self) -> list[dict[str, float]]:
        idle = {"delayed": 0.0, "communicating": 0.0}
        return [
            {"present": self.now, "computing": c, **idle, "waiting": max(0.0, self.now - c)} for c in self._computing
        ]

    _KEPT = ("now", "updates", "samples", "samples_applied", "loss_limit", "_computing")

    def save(self, tensors: dict[str, Any]) -> Any:
        tensors["x"] = self._x
        return {name: getattr(self, name) for name in self._KEPT}

    def restore(self, encoded: Any, tensors: Mapping[str, Any]) -> None:
        self._x = tensors["x"].clone()
        for name in self._KEPT:
            setattr(self, name, encoded[name])


def stretches_from(draw: int, size: int) -> Iterator[Stretch]:
    """The endless passes over the data, from a draw on; the last stretch of a pass is shorter."""
    per_pass = ceil(size / STRETCH)
    while True:
        number, k = divmod(draw, per_pass)
        start = k * STRETCH
        yield Stretch(draw, start, min(start + STRETCH, size), number * size + start)
        draw += 1
