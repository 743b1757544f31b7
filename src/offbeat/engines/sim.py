"""The simulator: real gradients, or none, on a virtual clock.

The loop is sequential and its order is chosen: events by (time, worker, sequence). A step that takes no time (a free
link, an idle server without service time) happens at once, inside the event that caused it. When a worker starts a
gradient its point and batch are known and the result is needed only when its virtual time has come: the pool computes
all gradients in flight side by side, and the result has the same bits for any pool.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from math import inf
from typing import Any, ClassVar

from offbeat.core.codec import Codec
from offbeat.core.effects import (
    AllReduce,
    Applied,
    Batch,
    Call,
    Cancel,
    Grad,
    Gradient,
    Lock,
    Mix,
    Received,
    Refused,
    Reply,
    Send,
    ServerEffect,
    SharedAdd,
    SharedRead,
    Stepped,
    Stop,
    Unlock,
    View,
    Wait,
)
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.reduction import payload_bytes
from offbeat.core.seeds import Dial, Draws, key64
from offbeat.core.solver import Solver, World
from offbeat.core.sparse import dense
from offbeat.core.task import Point, Task
from offbeat.core.trace import APPLIED, CANCELLED, IN_FLIGHT, LOST, RECEIVED, REFUSED, staleness
from offbeat.core.void import Void
from offbeat.engines.cluster import Cluster
from offbeat.engines.engine import Watcher
from offbeat.engines.memory import SharedMemory
from offbeat.engines.peers import Peers
from offbeat.engines.pool import Job, Pool
from offbeat.engines.reduce import Reduction
from offbeat.engines.slot import WorkerSlot, mean_buffers, split_schedule

CODES = range(13)
COMPUTED, FED, ARRIVED, SERVED, DELIVERED, REDUCED, MESSAGE, MIXED, READ, ADDED, CANCELLING, LOSE, JOIN = CODES


class Sim:
    """One simulated run: construct (or restore), then `run()`."""

    asks: ClassVar[frozenset[type]] = frozenset(
        {Grad, Batch, Call, AllReduce, Send, Wait, Mix, SharedRead, SharedAdd, Lock, Unlock, Applied, Stepped, Stop}
    )
    DELIVERED, REDUCED, MESSAGE, MIXED, READ, ADDED = DELIVERED, REDUCED, MESSAGE, MIXED, READ, ADDED
    clock: ClassVar[str] = "virtual"
    incidents: ClassVar[tuple[str, ...]] = ()
    lost_updates: ClassVar[int] = 0
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
        missing = solver.asks - self.asks
        if missing:
            names = ", ".join(sorted(e.__name__ for e in missing))
            raise ConfigError(f"the sim engine cannot run {type(solver).__name__}: it asks for {names}")
        self.task, self.solver, self.cluster, self.feed, self.seed = task, solver, cluster, feed, seed
        self._gap, self.resumable, self._quota = gap, resumable, samples_per_worker
        self.now = 0.0
        self.living = 0  # workers that are there
        self.updates = self.samples = self.samples_applied = self.bytes = 0
        self.next_samples: float = inf  # the watcher's next mark, in samples ...
        self.next_updates: float = inf  # ... and in updates
        self.loss_limit = -inf  # the watcher is shown the first loss, and sets it
        self.deadline = inf
        self.rows: list[tuple[Any, ...]] = []  # plain tuples in the order of `Row`: a million of them must be cheap
        self._stopped = False
        self.heap: list[tuple[float, int, int, int, Any]] = []
        self.sequence = 0
        self.free = 0.0  # the server is busy until then
        self.queued = 0.0  # time messages waited for the server, summed
        self.served = 0.0  # time the server was busy
        self.reduction, self.peers, self.memory = Reduction(self), Peers(self), SharedMemory(self)
        self._watcher: Watcher | None = None
        self.on_applied: Callable[[Applied], None] | None = None  # shown every gradient before its update
        self.codec = Codec(solver.records)
        dial = Dial()
        self.service = None
        if cluster.service.mean > 0:
            self.service = Draws(cluster.service.sample, seed=seed, stream="service", source=0, dial=dial)
        self.feeder = None  # the mini-batch generator node ...
        if cluster.feeder.mean > 0:
            self.feeder = Draws(cluster.feeder.sample, seed=seed, stream="feeder", source=0, dial=dial)
        self.fed = 0.0  # ... is busy until then
        self._scripts = split_schedule(cluster)
        self.initial = task.init(seed)
        self._timing = isinstance(self.initial.x, Void)
        self._instant = cluster.transfer_time(10**18) == 0  # messages take no time, whatever their size
        present = tuple(i for i in range(cluster.workers) if cluster.first_join(i) == 0)
        joining = tuple(sorted({e.worker for e in cluster.events if e.kind == "join" and e.at > 0}))
        self.world = World(cluster.workers, task.layout, present, feed.batch, task.size, seed, joining)
        self.server = solver.init_server(self.initial.x, self.world)
        self.workers = [WorkerSlot(i, cluster, seed, self.initial.buffers, dial) for i in range(cluster.workers)]
        # A single worker has one gradient in flight: a pool could only add overhead.
        self.pool = Pool(self._compute, threads if cluster.workers > 1 else 0)
        self._handlers: tuple[Callable[[int, Any], None], ...] = (
            self._on_computed,
            self._on_fed,
            self._on_arrived,
            self._on_served,
            self._on_delivered,
            self.reduction.end,
            self.peers.arrive,
            self.peers.mixed,
            self.memory.chunk_read,
            self.memory.chunk_added,
            self._on_cancelling,
            self._on_lose,
            self._on_join,
        )
        self._exchanges: Mapping[type, Callable[[int, WorkerSlot, Any], None]] = {
            Batch: self._wait_for_batch,
            AllReduce: self.reduction.begin,
            Wait: self.peers.wait,
            Mix: self.peers.mix,
            SharedRead: self.memory.read,
            SharedAdd: self.memory.add,
            Lock: self.memory.lock,
            Unlock: self.memory.unlock,
        }
        self.started = False

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, watcher: Watcher) -> str:
        """Runs until the watcher, the deadline or the end of work; says which: "watcher", "seconds", "idle"."""
        self.prepare(watcher)
        heap, handlers, tick = self.heap, self._handlers, watcher.tick
        while heap:
            if heap[0][0] > self.deadline:
                self.now = self.deadline
                return "seconds"
            self.now, worker, _, code, data = heappop(heap)
            handlers[code](worker, data)
            if self._stopped:
                return "watcher"
            if (self.samples >= self.next_samples or self.updates >= self.next_updates) and watcher.mark():
                return "watcher"
            if tick():
                return "watcher"
        return "idle"

    def prepare(self, watcher: Watcher) -> None:
        """Sets everybody going, unless it was restored."""
        self._watcher = watcher
        if not self.started:
            self.started = True
            for event in self.cluster.events:
                if event.at > 0 or event.kind == "lose":
                    self.push(event.at, event.worker, LOSE if event.kind == "lose" else JOIN, None)
            for i in self.world.present:  # everybody is there before anybody does anything
                self._enter(i, self.initial.x)
            for i in self.world.present:
                self._begin(i)

    def close(self) -> None:
        self.pool.close()

    def finish(self) -> None:
        """Closes the books: one row for every gradient still in flight."""
        for i, w in enumerate(self.workers):
            if w.alive:
                w.leave(self.now)
            if w.job is not None:
                self._note_unfinished(i, w.job, IN_FLIGHT)
            if w.gradient is not None:
                self._note(i, w.gradient, getattr(self.server, "version", None), IN_FLIGHT, None)
            if w.alive:
                self._note_kept(i, IN_FLIGHT)
        for _, worker, _, code, data in sorted(self.heap, key=lambda e: e[:3]):
            if code == DELIVERED and isinstance(data[1], View) and not self._void(worker, data[0]):
                # A snapshot under way to its worker: it has no batch yet, and counts in the conservation law.
                self._note_snapshot(worker, data[1].version)
            if code in (ARRIVED, SERVED) and isinstance(data[1], Gradient):
                self._note(worker, data[1], getattr(self.server, "version", None), IN_FLIGHT, None)
        for worker, g in self.solver.held(self.server):
            self._note(worker, g, getattr(self.server, "version", None), IN_FLIGHT, None)

    @property
    def point(self) -> Point:
        """The point that is evaluated: the rule's parameters; buffers are the workers' mean, in worker order."""
        states = {i: w.state for i, w in enumerate(self.workers) if w.alive}
        if not states:  # everybody has left, and what they knew is all there is
            states = {i: w.state for i, w in enumerate(self.workers) if w.state is not None}
        x = dense(self.solver.parameters(self.server, states))
        return Point(x, mean_buffers(self.initial.buffers, [w.buffers for w in self.workers if w.samples > 0]))

    @property
    def lr(self) -> float | None:
        return self.solver.lr(self.server, self.samples)

    @property
    def lost_share(self) -> float | None:
        return self.memory.lost_share

    @property
    def optimizer_group(self) -> dict[str, Any] | None:
        """The options of the torch optimizer at work, if there is one."""
        optimizer = getattr(getattr(self.server, "opt", None), "torch", None)
        return None if optimizer is None else optimizer.param_groups[0]

    def save(self, tensors: dict[str, Any]) -> Any:
        from offbeat.engines import checkpoint

        return checkpoint.save(self, tensors)

    def restore(self, encoded: Any, tensors: Mapping[str, Any]) -> None:
        from offbeat.engines import checkpoint

        checkpoint.restore(self, encoded, tensors)

    # -- workers ------------------------------------------------------------------------------------------------

    def _enter(self, i: int, x0: Any) -> None:
        w = self.workers[i]
        w.alive, w.life, w.arrived, w.fed = True, w.life + 1, self.now, False
        self.living += 1
        w.state = self.solver.init_worker(i, x0, self.world)

    def _begin(self, i: int) -> None:
        self._start_round(self.workers[i])
        self._pursue(i, self.workers[i], None)

    def _start_round(self, w: WorkerSlot) -> None:
        if self.resumable:
            w.start, w.answers = self.codec.snapshot(w.state), []
        w.round = self.solver.round(w.state)

    def _advance(self, i: int, w: WorkerSlot, answer: Any) -> None:
        """Answers the effect that the worker's rule waits for."""
        if self.resumable:
            w.answers.append(("answer", None, answer))
        self._pursue(i, w, answer)

    def _pursue(self, i: int, w: WorkerSlot, answer: Any) -> None:
        """Runs the worker's rule until it asks for something that takes time."""
        self._follow(i, w, self._ask(w, answer))

    def _ask(self, w: WorkerSlot, answer: Any) -> Any:
        """Gives the rule its answer; what it asks for next, in this round or a new one."""
        while True:
            try:
                return w.round.send(answer)
            except StopIteration:
                w.gradient = None
                self._start_round(w)
                answer = None

    def _follow(self, i: int, w: WorkerSlot, effect: Any) -> None:
        """Does what the rule asks for."""
        while True:
            kind = type(effect)
            if kind is Grad:
                self._start_gradient(i, w, effect)
                return
            if kind is Call:
                w.gradient = None  # in the server's books from now on
                self._send_to_server(i, w, effect.payload)
                return
            if kind in self._exchanges:
                self._exchanges[kind](i, w, effect)
                return
            if kind is Stop:
                self._leave(i)
                return
            answer = None
            if kind is Send:
                answer = self.peers.send(i, effect)
            else:
                self.announce(effect)
            if self.resumable:
                w.answers.append(("answer", None, answer))
            effect = self._ask(w, answer)

    # -- gradients ----------------------------------------------------------------------------------------------

    def _start_gradient(self, i: int, w: WorkerSlot, effect: Grad) -> None:
        if self._quota is not None and w.samples >= self._quota:
            self._leave(i)
            return
        if self.feeder is None or w.fed:
            w.fed = False
            self._compute_from_now(i, w, effect)
        else:
            self._order_batch(i, w, effect)

    def _wait_for_batch(self, i: int, w: WorkerSlot, effect: Batch) -> None:
        if self.feeder is None:
            self.deliver(i, w.life, None)
        else:
            self._order_batch(i, w, None)

    def _order_batch(self, i: int, w: WorkerSlot, effect: Grad | None) -> None:
        """The generator node makes one batch at a time, first come first served."""
        assert self.feeder is not None
        self.fed = max(self.now, self.fed) + self.feeder.next()
        self.push(self.fed, i, FED, (w.life, effect))

    def _on_fed(self, i: int, data: tuple[int, Grad | None]) -> None:
        w, (life, effect) = self.workers[i], data
        if not w.alive or w.life != life:
            return
        if effect is not None:
            self._compute_from_now(i, w, effect)
        else:
            w.fed = True
            self._advance(i, w, None)

    def _compute_from_now(self, i: int, w: WorkerSlot, effect: Grad) -> None:
        source, draw = self.feed.take(i)
        job = Job(effect.at, effect.version, w.buffers, source, draw, self.now)
        if self._scripts is None:
            for delay in w.delays:
                job.delay += delay.next()
            job.due = self.now + (w.times.next() + job.delay)
        else:
            job.due = self._scripted(i, w)
        w.job = job
        if job.due < inf:
            self.push(job.due, i, COMPUTED, job)
        if not self._timing:
            self.dispatch(job)

    def dispatch(self, job: Job) -> None:
        job.batch = self.feed.indices(job.source, job.draw)
        job.key = key64(self.seed, "model", job.source, job.draw)
        if job.due < inf:
            self.pool.add(job)

    def _scripted(self, i: int, w: WorkerSlot) -> float:
        assert self._scripts is not None
        script = self._scripts[i]
        if w.script == len(script):
            return inf
        due = script[w.script]
        if due < self.now:
            raise ConfigError(
                f"schedule: worker {i} cannot finish its gradient {w.script} at {due} s, it starts at {self.now} s"
            )
        w.script += 1
        return due

    def _compute(self, job: Job) -> Gradient:
        return self.task.gradient(Point(job.x, job.buffers), job.batch, job.key)

    def _on_computed(self, i: int, job: Job | None) -> None:
        w = self.workers[i]
        if job is None or w.job is not job:
            return  # cancelled, or its worker was lost
        w.job = None
        g = self._compute(job) if self._timing else self.pool.take(job)
        g.at, g.version, g.source, g.draw = job.x, job.version, job.source, job.draw
        g.started, g.computed, g.work = job.started, self.now, self.samples
        w.buffers, g.buffers = g.buffers, None
        w.samples += g.samples
        w.charge(job, self.now)
        assert self._watcher is not None
        if not g.loss <= self.loss_limit and self._watcher.suspicious(g.loss):
            self._stopped = True
            self._note(i, g, getattr(self.server, "version", None), IN_FLIGHT, None)
            return
        w.gradient = g
        self._advance(i, w, g)

    def _drop_job(self, i: int, outcome: str) -> None:
        w = self.workers[i]
        if w.job is None:
            return
        job, w.job = w.job, None
        self.pool.cancel(job)
        w.charge(job, self.now)
        self._note_unfinished(i, job, outcome)

    # -- messages -----------------------------------------------------------------------------------------------

    def push(self, time: float, worker: int, code: int, data: Any) -> None:
        self.sequence += 1
        heappush(self.heap, (time, worker, self.sequence, code, data))

    def _send_to_server(self, i: int, w: WorkerSlot, payload: Any) -> None:
        size = payload_bytes(payload)
        self.bytes += size
        takes = 0.0 if self._instant else self.cluster.transfer_time(size)
        if takes > 0:
            w.communicating += takes
            self.push(self.now + takes, i, ARRIVED, (w.life, payload))
        else:
            self._on_arrived(i, (w.life, payload))

    def _on_arrived(self, i: int, letter: tuple[int, Any]) -> None:
        if self.service is None or self._void(i, letter[0]):
            self._on_served(i, letter)
            return
        begins = self.free if self.free > self.now else self.now
        takes = self.service.next()
        self.queued += begins - self.now
        self.served += takes
        self.free = begins + takes
        self.push(self.free, i, SERVED, letter)

    def _on_served(self, i: int, letter: tuple[int, Any]) -> None:
        life, payload = letter
        if not self._void(i, life):
            self._perform(self.solver.on_call(self.server, i, payload))
        elif isinstance(payload, Gradient):
            self._note(i, payload, getattr(self.server, "version", None), LOST, None)

    def _void(self, i: int, life: int) -> bool:
        """Whether a message's sender was lost meanwhile: what it had under way is lost with it."""
        return not self.workers[i].alive or self.workers[i].life != life

    def _perform(self, effects: Iterable[ServerEffect]) -> None:
        """Runs the server's rule to its end, then sends what it said: a reply must not re-enter a rule half done."""
        outgoing: list[Reply | Cancel] = []
        for effect in effects:
            kind = type(effect)
            if kind is Reply or kind is Cancel:
                outgoing.append(effect)  # type: ignore[arg-type]  # it is one of the two
            else:
                self.announce(effect)
        for message in outgoing:
            i, to = message.worker, self.workers[message.worker]
            replying = type(message) is Reply
            value = message.value if type(message) is Reply else None
            size = payload_bytes(value)
            self.bytes += size
            takes = 0.0 if self._instant else self.cluster.transfer_time(size)
            if takes > 0:
                to.communicating += takes
                self.push(self.now + takes, i, DELIVERED if replying else CANCELLING, (to.life, value))
            elif replying:
                self.deliver(i, to.life, value)
            else:
                self._on_cancelling(i, (to.life, value))

    def _on_delivered(self, i: int, data: tuple[int, Any]) -> None:
        self.deliver(i, *data)

    def deliver(self, i: int, life: int, value: Any) -> None:
        """Answers the effect that worker i waits for, unless it was lost meanwhile."""
        w = self.workers[i]
        if w.alive and w.life == life:
            self._advance(i, w, value)

    def _on_cancelling(self, i: int, data: tuple[int, Any]) -> None:
        w = self.workers[i]
        if w.alive and w.life == data[0] and w.job is not None:
            self._drop_job(i, CANCELLED)
            self._advance(i, w, None)

    # -- joins and losses ---------------------------------------------------------------------------------------

    def _on_join(self, i: int, _: Any) -> None:
        self._perform(self.solver.on_join(self.server, i))
        self._enter(i, None)
        self._begin(i)

    def _on_lose(self, i: int, _: Any) -> None:
        w = self.workers[i]
        if w.alive:
            self._drop_job(i, LOST)
            if w.gradient is not None:
                self._note(i, w.gradient, getattr(self.server, "version", None), LOST, None)
            self._leave(i)

    def _leave(self, i: int) -> None:
        w = self.workers[i]
        self._note_kept(i, LOST)
        w.alive, w.gradient = False, None
        self.living -= 1
        w.start, w.answers = w.state, []  # for a checkpoint: its round is over
        w.leave(self.now)
        self._perform(self.solver.on_lost(self.server, i))
        self.reduction.lost(i)
        self.memory.lost(i)
        self.peers.lost(i)

    # -- the record ---------------------------------------------------------------------------------------------

    def announce(self, effect: Any) -> None:
        kind = type(effect)
        if kind is Applied:
            gap = None
            if self._gap and effect.x is not None:
                at = effect.gradient.at
                gap = 0.0 if effect.x is at else float((effect.x - at).norm())
            self._note(effect.worker, effect.gradient, effect.version, APPLIED, gap, effect.staleness)
            if self.on_applied is not None:
                self.on_applied(effect)
            self.samples_applied += effect.gradient.samples
            self.workers[effect.worker].gradient = None
        elif kind is Stepped:
            self.updates += 1
        elif kind is Refused:
            self._note(effect.worker, effect.gradient, effect.version, REFUSED, None)
        elif kind is Received:
            self._note_received(effect.worker, effect.gradient, effect.staleness)
        else:
            raise TypeError(f"a rule yielded {effect!r}, which is no effect that belongs there")

    def _note(
        self, i: int, g: Gradient, version: int | None, outcome: str, gap: float | None, tau: int | None = None
    ) -> None:
        for part in g.parts:
            self._note(i, part, version, outcome, gap, tau)
        if g.parts:
            return
        used = outcome == APPLIED
        self.rows.append(
            (
                self.now,
                i,
                g.source,
                g.draw,
                g.version,
                version,
                staleness(version, g.version) if tau is None else tau,
                gap,
                used,
                outcome,
                g.loss,
                g.samples,
                g.started,
                g.computed,
                g.norm,
                g.correct,
            )
        )
        if used or outcome == REFUSED:
            self.samples += g.samples

    def _note_received(self, i: int, g: Gradient, tau: int | None) -> None:
        """A peer's gradient, applied here too: the worker spent no time on it, and its samples count once."""
        seen = (None, None, tau, None, True, RECEIVED, g.loss, 0, self.now, self.now, g.norm, None)
        self.rows.append((self.now, i, g.source, g.draw, *seen))

    def _note_kept(self, i: int, outcome: str) -> None:
        for g in self.solver.kept(self.workers[i].state):
            self._note(i, g, getattr(self.server, "version", None), outcome, None)

    def _note_unfinished(self, i: int, job: Job, outcome: str) -> None:
        version = getattr(self.server, "version", None)
        age = staleness(version, job.version)
        ends = (None, False, outcome, None, 0, job.started, self.now, None, None)
        self.rows.append((self.now, i, job.source, job.draw, job.version, version, age, *ends))

    def _note_snapshot(self, i: int, read: int) -> None:
        version = getattr(self.server, "version", None)
        ends = (None, False, IN_FLIGHT, None, 0, self.now, self.now, None, None)
        self.rows.append((self.now, i, i, None, read, version, staleness(version, read), *ends))

    def breakdown(self) -> list[dict[str, float]]:
        """Where the seconds of each worker went."""
        return [w.breakdown(self.now) for w in self.workers]
