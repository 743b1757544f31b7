"""What every process of a run is given once, in memory, at its start."""

import importlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from offbeat.core.codec import Codec
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver, World
from offbeat.core.task import Point, Task
from offbeat.engines.cluster import Cluster
from offbeat.engines.local.memory import Arena

Recipe = tuple[str, tuple[Any, ...]]
"""`package.module:function` and its arguments: a task that is made anew rather than sent."""


@dataclass(frozen=True)
class Fault:
    """For tests: what goes wrong, exactly when. `at` is a worker's gradient, or the server's update, from 0."""

    kind: str  # kill, hang, raise
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
    recipe: Recipe | None = None
    started: float = field(default_factory=time.monotonic)

    def build_task(self) -> Task:
        if self.task is not None:
            return self.task
        assert self.recipe is not None
        path, arguments = self.recipe
        module, _, name = path.partition(":")
        made: Task = getattr(importlib.import_module(module), name)(*arguments)
        return made


class Site:
    """A run inside one of its processes: what was sent, what follows from it, and the shared memory."""

    def __init__(self, setup: Setup, task: Task, initial: Point, arena: Arena) -> None:
        self.setup, self.task, self.initial, self.arena = setup, task, initial, arena
        self.solver, self.cluster, self.feed, self.seed = setup.solver, setup.cluster, setup.feed, setup.seed
        self.options = setup.options
        self.row_sparse = getattr(task, "row_sparse", False)
        self.codec = Codec(setup.solver.records)
        self.world = world_of(setup.cluster, task, setup.feed, setup.seed)
        self.clock = Clock(arena)
        self.shows = shows_workers(setup.solver, initial, self.world)

    def fault(self, kind: str, at: int, worker: int | None, life: int = 1) -> bool:
        return Fault(kind, at, worker, life) in self.options.faults


class _Spy(Mapping[int, Any]):
    """An empty mapping that knows whether anybody looked into it."""

    looked = False

    def __getitem__(self, key: int) -> Any:
        self.looked = True
        raise KeyError(key)

    def __iter__(self) -> Iterator[int]:
        self.looked = True
        return iter(())

    def __len__(self) -> int:
        self.looked = True
        return 0


def shows_workers(solver: Solver, initial: Point, world: World) -> bool:
    """Whether the parameters that are evaluated are made of the workers' own."""
    spy = _Spy()
    solver.parameters(solver.init_server(initial.x, world), spy)
    return spy.looked


def world_of(cluster: Cluster, task: Task, feed: Feed, seed: int) -> World:
    present = tuple(i for i in range(cluster.workers) if cluster.first_join(i) == 0)
    joining = tuple(sorted({e.worker for e in cluster.events if e.kind == "join" and e.at > 0}))
    return World(cluster.workers, task.layout, present, feed.batch, task.size, seed, joining)


class Clock:
    """The run's clock: wall seconds since it began, without the time that it stood still (evaluations)."""

    def __init__(self, arena: Arena) -> None:
        self._paused, self._zero = arena.paused_ns, arena.header[3:4]

    def start(self, elapsed: float) -> None:
        """By the server; `elapsed` is what earlier sessions of the run took."""
        self._zero[0] = time.monotonic_ns() - round(elapsed * 1e9)
        self._paused[0] = 0

    def now(self) -> float:
        while True:  # a worker may be stopped between the two readings
            paused = int(self._paused[0])
            now = time.monotonic_ns() - int(self._zero[0]) - paused
            if paused == self._paused[0]:
                return now / 1e9

    def skip(self, since: float) -> None:
        """By the server: the time since then (in seconds of this clock) does not count."""
        self._paused[0] += round((self.now() - since) * 1e9)


def check_cluster(cluster: Cluster) -> None:
    """What is real here cannot be set: one line that says so, before anything starts."""
    blank = Cluster(workers=cluster.workers)
    for name in ("latency", "bandwidth", "service", "peers", "memory", "feeder", "schedule"):
        if getattr(cluster, name) != getattr(blank, name):
            raise ConfigError(
                f"cluster.{name} is for simulation: on the local engine they are the machine's own; "
                "leave it out, or use engine=sim (delay and events work on both)"
            )
