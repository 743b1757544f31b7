"""A simulated run, as its parts see it: who is there, what time it is, what comes next, what is written down."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from offbeat.core.codec import Codec
from offbeat.core.feed import Feed
from offbeat.core.seeds import Dial
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.core.void import Void
from offbeat.engines.cluster import Cluster
from offbeat.engines.running.fit import world_of
from offbeat.engines.running.ledger import Ledger
from offbeat.engines.running.serving import Serving
from offbeat.engines.sim.event_heap import Events
from offbeat.engines.sim.sim_worker import SimWorker


class Context:
    """What the parts of the simulator share. None of them knows the engine that puts them together."""

    def __init__(
        self, task: Task, solver: Solver, cluster: Cluster, feed: Feed, seed: int, *, gap: bool, resumable: bool
    ) -> None:
        self.task, self.solver, self.cluster, self.feed, self.seed = task, solver, cluster, feed, seed
        self.world = world_of(cluster, task, feed, seed)
        self.initial = task.init(seed)
        self.timing = isinstance(self.initial.x, Void)
        """No gradients are computed: the clock alone."""
        self.now = 0.0
        self.bytes = 0
        self.living = 0  # workers that are there
        self.stopped = False  # by the watcher, in the middle of an event
        self.loss_limit = -inf  # the watcher is shown the first loss, and sets it
        self.suspicious: Callable[[float], bool] = lambda loss: False
        self.suspect = ""  # whose loss that is
        self.dial = Dial()
        make = partial(SimWorker, cluster=cluster, feed=feed, seed=seed, buffers=self.initial.buffers, dial=self.dial)
        self.workers = [make(i) for i in range(cluster.workers)]
        self.events = Events()
        self.ledger = Ledger(gap=gap)
        self.serving = Serving(solver, solver.init_server(self.initial.x, self.world), self.ledger, self.world.present)
        self.codec = Codec(solver.records)
        self.resumable = resumable
        self.advance: Callable[[int, SimWorker, Any], None]
        """Answers what a worker's rule waits for, and does what it asks for next. Set by the engine."""
        self.leave: Callable[[int], None]
        """A worker goes for good, or until it joins again. Set by the engine."""
        self.spend: Callable[[int, float, int, Any], None] = self._on_the_way
        """(worker, seconds, code, data): its message, or pass over memory, takes so long; then the event happens. Where
        that needs a core, `Cores` does it."""
        self.leaving: set[int] = set()
        """Workers that have been told that they will be lost: they begin no other gradient."""

    def _on_the_way(self, i: int, takes: float, code: int, data: Any) -> None:
        """It takes its time, whoever else does what."""
        self.workers[i].communicating += takes
        self.events.push(self.now + takes, i, code, data)

    def void(self, i: int, life: int) -> bool:
        """Whether worker i was lost since: what it had under way is lost with it."""
        w = self.workers[i]
        return not w.alive or w.life != life

    def deliver(self, i: int, life: int, value: Any) -> None:
        """Answers what worker i waits for, unless it was lost meanwhile."""
        w = self.workers[i]
        if w.alive and w.life == life:
            self.advance(i, w, value)
