"""What every process of a run is given at its start, and what follows from it."""

import importlib
from dataclasses import dataclass, fields
from typing import Any

from offbeat.core.codec import Codec
from offbeat.core.effects import Push
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver
from offbeat.core.task import Point, Task
from offbeat.engines.cluster import Cluster
from offbeat.engines.real.board import Board, Clock
from offbeat.engines.real.mail import Mail, Places
from offbeat.engines.running.fit import world_of

Maker = tuple[str, tuple[Any, ...]]
"""`package.module:function` and its arguments: a task that is made anew rather than sent."""


@dataclass(frozen=True)
class Fault:
    """For tests: what goes wrong, exactly when. `at` is a worker's gradient, or the server's update, from 0."""

    kind: str  # kill, hang, raise; of the server's first shard: kill shard; in the middle of a sum: kill sum, hang sum
    at: int
    worker: int | None = None  # None: the server
    life: int = 1  # of the worker: 1 is the one it started with


@dataclass(frozen=True)
class Options:
    """How a run on real processes is done."""

    on_loss: str = "restart"  # a lost worker is restarted, or left out
    patience_seconds: float = 60.0  # a process silent for longer is taken for hung
    restarts: int = 20  # a run that loses more processes fails
    gap: bool = False
    quota: int | None = None  # samples a worker
    start: int | None = None  # so many workers begin; None: all
    floor: int = 1  # a run with fewer workers fails
    short: int = 1 << 20  # an all-reduce of so many elements in all is summed by everybody, instead of a slice each
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Setup:
    """A run, as its processes see it."""

    solver: Solver
    cluster: Cluster
    feed: Feed
    seed: int
    options: Options
    task: Task | None = None
    maker: Maker | None = None

    def build_task(self) -> Task:
        if self.task is not None:
            return self.task
        assert self.maker is not None
        path, arguments = self.maker
        module, _, name = path.partition(":")
        made: Task = getattr(importlib.import_module(module), name)(*arguments)
        return made


def pickled(setup: Setup) -> bytes:
    """The setup, for other processes of the run alone; names what cannot be sent."""
    import cloudpickle

    try:
        blob: bytes = cloudpickle.dumps(setup)
        return blob
    except Exception as e:
        for what, value in (("task", setup.task), ("solver", setup.solver)):
            parts = value.__getstate__() if value is not None else None
            for name, part in parts.items() if isinstance(parts, dict) else ():
                try:
                    cloudpickle.dumps(part)
                except Exception as inner:
                    raise ConfigError(
                        f"the {what} cannot be sent to worker processes: its attribute {name!r} "
                        f"({type(part).__name__}) cannot be pickled: {inner}"
                    ) from None
        raise ConfigError(f"the run cannot be sent to worker processes: {e}") from None


class Site:
    """A run inside one of its processes."""

    def __init__(self, setup: Setup, task: Task, initial: Point, board: Board) -> None:
        self.task, self.initial, self.board = task, initial, board
        self.solver, self.cluster, self.feed, self.seed = setup.solver, setup.cluster, setup.feed, setup.seed
        self.options = setup.options
        self.row_sparse = bool(getattr(task, "row_sparse", False))
        self.codec = Codec(setup.solver.records)
        self.world = world_of(setup.cluster, task, setup.feed, setup.seed, setup.options.start)
        self.clock = Clock(board)

    def mail(self, places: Places) -> Mail:
        """What packs the messages between a worker and the server."""
        return Mail(self.codec, places, two=Push in self.solver.asks)

    def fault(self, kind: str, at: int, worker: int, life: int) -> bool:
        return Fault(kind, at, worker, life) in self.options.faults

    def server_fault(self, kind: str, updates: int, life: int) -> bool:
        """Updates may come several at a time, where workers announce them."""
        mine = [f for f in self.options.faults if f.kind == kind and f.worker is None and f.life == life]
        return any(updates >= f.at for f in mine)


def check_cluster(cluster: Cluster, engine: str) -> None:
    """What is real here cannot be set: one line that says so, before anything starts."""
    blank = Cluster(workers=cluster.workers)
    for name in (field.name for field in fields(cluster) if field.name not in ("workers", "delay", "events")):
        if getattr(cluster, name) != getattr(blank, name):
            raise ConfigError(
                f"cluster.{name} is for simulation: on the {engine} engine they are the machine's own; "
                "leave it out, or use engine=sim (delay and events work on both)"
            )
