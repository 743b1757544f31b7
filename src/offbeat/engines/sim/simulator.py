"""The simulator: real gradients, or none, on a virtual clock.

The loop is sequential and its order is chosen: events by (time, worker, sequence). A step that takes no time (a free
link, an idle server without service time) happens at once, inside the event that caused it. When a worker starts a
gradient its point and batch are known and the result is needed only when its virtual time has come: the pool computes
all gradients in flight side by side, and the result has the same bits for any pool.
"""

from collections.abc import Callable, Mapping
from heapq import heappop
from math import inf
from typing import Any, ClassVar

from offbeat.core.effects import (
    EVERY_REQUEST,
    AllReduce,
    Await,
    Batch,
    Call,
    Grad,
    Lock,
    Mix,
    Push,
    Send,
    SharedAdd,
    SharedRead,
    Stop,
    Unlock,
    Wait,
)
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.core.trace import IN_FLIGHT, LOST
from offbeat.engines.cluster import Cluster
from offbeat.engines.protocol import Watcher
from offbeat.engines.running.fit import require, world_of
from offbeat.engines.running.rounds import Rounds
from offbeat.engines.sim import saving as checkpoint
from offbeat.engines.sim.all_reduce import Reduction
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.departures import Departures
from offbeat.engines.sim.event_heap import CODES, JOIN, LOSE
from offbeat.engines.sim.peers import Peers
from offbeat.engines.sim.readings import Readings
from offbeat.engines.sim.server_link import ServerLink
from offbeat.engines.sim.shared import SharedMemory
from offbeat.engines.sim.sim_worker import SimWorker


class Sim(Readings):
    """One simulated run: construct (or restore), then `run()`.

    Args:
        task, solver, cluster, feed: what is run, and on what.
        seed: of everything random.
        threads: how many compute gradients; the result does not depend on it.
        gap: whether |x now - x read| is written down for every gradient.
        resumable: whether it can be saved; costs a little.
        samples_per_worker: after so many samples of its own a worker leaves.
    """

    asks: ClassVar[frozenset[type]] = EVERY_REQUEST
    clock: ClassVar[str] = "virtual"
    incidents: ClassVar[tuple[str, ...]] = ()
    machines: ClassVar[tuple[str, ...]] = ()
    lost_updates: ClassVar[int] = 0
    revisions: ClassVar[int] = 0
    waiting: ClassVar[str] = ""
    journal: list[tuple[float, str, int, int]] | None = None  # its order is chosen: the same seed is a replay

    def __init__(
        self,
        task: Task,
        solver: Solver,
        cluster: Cluster,
        feed: Feed,
        *,
        seed: int,
        threads: int = 0,
        gap: bool = False,
        resumable: bool = True,
        samples_per_worker: int | None = None,
    ) -> None:
        require("sim", self.asks, solver, world_of(cluster, task, feed, seed))
        self.task, self.solver, self.cluster, self.feed, self.seed = task, solver, cluster, feed, seed
        context = self.context = Context(task, solver, cluster, feed, seed, gap=gap, resumable=resumable)
        context.advance, context.leave = self._advance, self._leave
        self.next_samples: float = inf  # the watcher's next mark, in samples ...
        self.next_updates: float = inf  # ... and in updates
        self.deadline = inf
        self.computing = self._make_computing(threads, samples_per_worker)
        self.link = ServerLink(context, self.computing)
        self.reduction, self.peers, self.memory = Reduction(context), Peers(context), SharedMemory(context)
        self.departures = Departures(context, self._on_lose, self._on_join)
        cores, ways = self.computing.cores, self.link.ways
        self._handlers: tuple[Callable[[int, Any], None], ...] = (
            self.computing.computed,
            self.computing.batch_arrived,
            self.link.arrived,
            self.link.service_over,
            self.link.delivered,
            self.reduction.end,
            self.peers.arrive,
            self.peers.mixed,
            self.memory.chunk_read,
            self.memory.chunk_added,
            self.link.cancelling,
            self._on_lose,
            self._on_join,
            *((_never,) * 3 if cores is None else (cores.woken, cores.shared, cores.changed)),
            *((_never,) * 2 if ways is None else (ways.entered, ways.passed)),
            self.departures.noticed,
            self.departures.taken,
            self.departures.back,
            self.reduction.summed,
            _never if cores is None else cores.released,
        )
        assert len(self._handlers) == len(CODES)
        self._requests: Mapping[type, Callable[[int, SimWorker, Any], None]] = {
            Grad: self.computing.begin,
            Call: self.link.call,
            Push: self.link.push,
            Await: self.link.wait,
            Batch: self.computing.wait_for_batch,
            AllReduce: self.reduction.begin,
            Wait: self.peers.wait,
            Mix: self.peers.mix,
            SharedRead: self.memory.read,
            SharedAdd: self.memory.add,
            Lock: self.memory.lock,
            Unlock: self.memory.unlock,
            Stop: lambda i, w, effect: self._leave(i),
        }
        self.started = False

    def _make_computing(self, threads: int, quota: int | None) -> Computing:
        return Computing(self.context, threads=threads, quota=quota)

    def _make_rounds(self, state: Any) -> Rounds:
        return Rounds(self.solver, state, self.context.codec if self.context.resumable else None)

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, watcher: Watcher) -> str:
        """Runs until the watcher, the deadline or the end of work; says which: "watcher", "seconds", "idle"."""
        self.prepare(watcher)
        context, handlers, tick = self.context, self._handlers, watcher.tick
        heap, ledger = context.events.heap, context.ledger
        while heap:
            if heap[0][0] > self.deadline:
                context.now = self.deadline
                return "seconds"
            context.now, worker, _, code, data = heappop(heap)
            handlers[code](worker, data)
            if context.stopped:
                return "watcher"
            if (ledger.samples >= self.next_samples or ledger.updates >= self.next_updates) and watcher.mark():
                return "watcher"
            if tick():
                return "watcher"
        return "idle"

    @property
    def suspect(self) -> str:
        return self.context.suspect

    def prepare(self, watcher: Watcher) -> None:
        """Sets everybody going, unless it was restored."""
        context = self.context
        context.suspicious = watcher.suspicious
        if not self.started:
            self.started = True
            for event in self.cluster.events:
                if event.at > 0 or event.kind == "lose":
                    context.events.push(event.at, event.worker, LOSE if event.kind == "lose" else JOIN, None)
            self.departures.prepare()
            for i in context.world.present:  # everybody is there before anybody does anything
                self._enter(i, context.initial.x)
            for i in context.world.present:
                self._begin(i)

    def close(self) -> None:
        self.pool.close()

    def finish(self) -> None:
        """One row for every gradient still in flight: computing, in a rule's hands, under way, held by the server."""
        context = self.context
        now, ledger, version = context.now, context.ledger, context.serving.version
        for i, w in enumerate(context.workers):
            if w.alive:
                w.leave(now)
            if w.job is not None:
                self.computing.note_unfinished(i, w.job, IN_FLIGHT)
            if w.rounds is not None and w.rounds.gradient is not None:
                ledger.note(now, i, w.rounds.gradient, version, IN_FLIGHT)
            if w.alive:
                self._note_kept(i, IN_FLIGHT)
        self.link.note_under_way()
        for worker, g in self.solver.held(context.serving.state):
            ledger.note(now, worker, g, version, IN_FLIGHT)

    # -- workers ------------------------------------------------------------------------------------------------

    def _enter(self, i: int, x0: Any) -> None:
        context = self.context
        w = context.workers[i]
        w.alive, w.life, w.arrived, w.fed = True, w.life + 1, context.now, False
        context.living += 1
        w.rounds = self._make_rounds(self.solver.init_worker(i, x0, context.world))

    def _begin(self, i: int) -> None:
        w = self.context.workers[i]
        assert w.rounds is not None
        self._follow(i, w, w.rounds.begin())

    def _advance(self, i: int, w: SimWorker, answer: Any) -> None:
        """Answers what the worker's rule waits for, and does what it asks for next."""
        self._follow(i, w, w.rounds.answer(answer))  # type: ignore[union-attr]  # who waits has a rule

    def _follow(self, i: int, w: SimWorker, effect: Any) -> None:
        """Does what the rule asks for, until it asks for something that takes time."""
        context = self.context
        while True:
            request = self._requests.get(type(effect))
            if request is not None:
                request(i, w, effect)
                return
            answer = None
            if type(effect) is Send:
                answer = self.peers.send(i, effect)
            else:
                context.ledger.announce(effect, context.now)
            effect = w.rounds.answer(answer)  # type: ignore[union-attr]

    def _on_join(self, i: int, _: Any) -> None:
        context = self.context
        self.link.send(context.serving.join(i, context.now))
        self._enter(i, None)
        self._begin(i)

    def _on_lose(self, i: int, _: Any) -> None:
        context = self.context
        w = context.workers[i]
        if w.alive:
            self.computing.drop(i, LOST)
            assert w.rounds is not None
            if w.rounds.gradient is not None:
                context.ledger.note(context.now, i, w.rounds.gradient, context.serving.version, LOST)
            self._leave(i)

    def _leave(self, i: int) -> None:
        context = self.context
        w = context.workers[i]
        assert w.rounds is not None
        self._note_kept(i, LOST)
        w.alive = False
        context.living -= 1
        w.rounds.end()
        w.leave(context.now)
        self.link.send(context.serving.lose(i, context.now))
        self.reduction.lost(i)
        self.memory.lost(i)
        self.peers.lost(i)

    def _note_kept(self, i: int, outcome: str) -> None:
        context = self.context
        for g in self.solver.kept(context.workers[i].state):
            context.ledger.note(context.now, i, g, context.serving.version, outcome)

    # -- checkpoints --------------------------------------------------------------------------------------------

    def save(self, tensors: dict[str, Any]) -> Any:
        """Everything the run needs to go on, as JSON and tensors. Call between two events."""
        return checkpoint.save(self.context, self._parts(), self.started, tensors)

    def restore(self, encoded: Any, tensors: Mapping[str, Any]) -> None:
        """The inverse of `save`."""
        context = self.context
        tree, pending = checkpoint.restore(context, self._parts(), self._make_rounds, encoded, tensors)
        self.started = tree["started"]
        for w in context.workers:
            if w.job is not None:
                self.computing.dispatch(w.job)
        for i in tree["reducing"]:
            self.reduction.waiting[i] = pending[i]

    def _parts(self) -> checkpoint.Parts:
        return checkpoint.Parts(self.computing, self.link, self.reduction, self.peers, self.memory, self.departures)


def _never(i: int, _: Any) -> None:
    """What this cluster has no part for."""
    raise AssertionError(f"an event of worker {i} that nobody can have sent")
