"""The simulator without gradients: any rule, the same events, with the commonest steps written out.

A timing-only simulation has nothing to compute, so all that costs is the loop. Two kinds of events are nearly all there
are: a worker has finished, and the server has served a message. Here they are handled in one place, without a call for
each small step; whatever else happens is left to `Sim`. tests/test_timing.py compares both, event for event.
"""

import gc
from collections.abc import Generator
from heapq import heappop, heappush
from math import inf
from typing import Any

from offbeat.core.effects import Applied, Call, Cancel, Grad, Gradient, Reply, Stepped, View
from offbeat.core.reduction import payload_bytes
from offbeat.core.trace import APPLIED
from offbeat.engines.protocol import Watcher
from offbeat.engines.running.rounds import Rounds
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.event_heap import COMPUTED, JOIN, LOSE, SERVED
from offbeat.engines.sim.sim_worker import SimWorker
from offbeat.engines.sim.simulator import Sim

_TICK = 1000  # events between two looks of the watcher: it only shows progress


class Pending(Gradient, eq=False, gc=False):
    """A gradient that needs no computing: it is its own job."""

    delay: float = 0.0


class EndlessRounds(Rounds):
    """All rounds as one: that the next one begins where one ends costs nothing here."""

    __slots__ = ("send",)

    def begin(self) -> Any:
        self.send = self._forever().send
        return self.send(None)

    def answer(self, value: Any) -> Any:
        if type(value) is Pending:
            self.gradient = value
        effect = self.send(value)
        if type(effect) is Call or type(effect) is Applied:
            self.gradient = None
        return effect

    def _forever(self) -> Generator[Any, Any, None]:
        while True:
            yield from self._solver.round(self.state)
            self.gradient = None


class IdleComputing(Computing):
    """Nothing is computed: only when it would be ready counts."""

    def from_now(self, i: int, w: SimWorker, effect: Grad) -> None:
        context = self._context
        source, draw = context.feed.take(i)
        g = Pending(
            effect.at, 0.0, context.feed.batch, None, None, None, effect.at, effect.version, source, draw, context.now
        )
        g.delay, due = self.span(i, w)
        w.job = g  # type: ignore[assignment]  # it is its own job
        if due < inf:
            context.events.push(due, i, COMPUTED, g)

    def computed(self, i: int, job: Any) -> None:
        context = self._context
        w: Any = context.workers[i]
        if w.job is not job:
            return
        w.job, job.computed, job.work = None, context.now, context.ledger.samples
        w.samples += job.samples
        w.charge(job, context.now)
        context.advance(i, w, job)


class Timing(Sim):
    """A `Sim` whose task is idle. It cannot be checkpointed, because it need not be: it takes seconds."""

    def _make_computing(self, threads: int, quota: int | None) -> Computing:
        self._limited = quota is not None
        return IdleComputing(self.context, threads=threads, quota=quota)

    def _make_rounds(self, state: Any) -> Rounds:
        return EndlessRounds(self.solver, state)

    def run(self, watcher: Watcher) -> str:
        self.loss_limit = inf
        assert self.context.timing
        assert not self.context.resumable
        link, computing = self.link, self.computing
        plain = link.instant and link.service is not None and computing.scripts is None and not self._limited
        if not plain or computing.feeder is not None:
            return super().run(watcher)
        self.prepare(watcher)
        heap = self.context.events.heap
        queue: list[Any] = []  # those of the server have a heap of their own: it is short, and the other one long
        heappush(heap, (inf, 0, 0, -1, None))
        collecting = gc.isenabled()
        gc.disable()  # a million rows without a cycle among them
        try:
            return self._loop(watcher, heap, queue)
        finally:
            if collecting:
                gc.enable()
            heap[:] = sorted(event for event in heap + queue if event[3] >= 0)

    def _loop(self, watcher: Watcher, heap: list[Any], queue: list[Any]) -> str:
        """The counters are local while nobody else looks at them: `_lend` puts them where others do, `_take` back."""
        workers: list[Any] = self.workers  # whose jobs are gradients here
        server, on_call, note = self.server, self.solver.on_call, self.rows.append
        assert self.link.service is not None
        service, ticks, deadline = self.link.service.next, _TICK, self.deadline
        take, batch = self.feed.take, self.feed.batch
        free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
        said: Any
        while True:
            event = heappop(queue) if queue and queue[0] < heap[0] else heappop(heap)
            now, i, _, code, data = event
            if now > deadline:
                heappush(heap, event)
                self._lend(deadline, free, queued, served, sequence, nbytes, samples, applied, updates)
                return "seconds"
            if code == COMPUTED:
                w = workers[i]
                if w.job is not data:
                    continue  # cancelled, or its worker was lost
                w.job, data.computed, data.work = None, now, samples
                w.samples += data.samples
                spent = now - data.started
                if data.delay:
                    delay = data.delay if data.delay < spent else spent
                    w.delayed += delay
                    spent -= delay
                w.computing += spent
                w.rounds.gradient = data
                effect = w.rounds.send(data)
                if type(effect) is Call:
                    w.rounds.gradient = None
                    payload = effect.payload
                    nbytes += payload.value.nbytes if type(payload) is Pending else payload_bytes(payload)
                    begins = free if free > now else now
                    takes = service()
                    queued += begins - now
                    served += takes
                    free = begins + takes
                    sequence += 1
                    heappush(queue, (free, i, sequence, SERVED, (w.life, payload)))
                    continue  # nothing was applied: no mark can have been reached
                if type(effect) is Applied:
                    w.rounds.gradient = None
                self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates)
                self._follow(i, w, effect)
                free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
            elif code == SERVED and workers[i].life == data[0] and workers[i].alive:
                outgoing: list[Any] = []
                for said in on_call(server, i, data[1]):
                    kind = type(said)
                    if kind is Applied and said.staleness is None and not said.gradient.parts:
                        g, version = said.gradient, said.version
                        read, number, started = g.version, g.samples, g.started
                        tau = None if version is None or read is None else version - read
                        end = g.computed
                        # fmt: off
                        note((now, said.worker, g.source, g.draw, read, version, tau, None, True, APPLIED, 0.0, number,
                              started, end, None, None))
                        # fmt: on
                        samples += number
                        applied += number
                    elif kind is Stepped:
                        updates += 1
                    elif kind is Reply or kind is Cancel:
                        outgoing.append(said)
                    else:
                        self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates)
                        self.context.ledger.announce(said, now)
                        free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
                for message in outgoing:
                    j = message.worker
                    w = workers[j]
                    effect = None
                    if type(message) is Reply:
                        view = message.value
                        nbytes += view.x.nbytes if type(view) is View else payload_bytes(view)
                        if not w.alive:
                            continue
                        effect = w.rounds.send(view)
                        if type(effect) is Grad:
                            source, draw = take(j)
                            at = effect.at
                            w.job = g = Pending(at, 0.0, batch, None, None, None, at, effect.version, source, draw, now)
                            for extra in w.delays:
                                g.delay += extra.next()
                            sequence += 1
                            heappush(heap, (now + (w.times.next() + g.delay), j, sequence, COMPUTED, g))
                            continue
                    self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates)
                    if effect is None:
                        self.link.cancelling(j, (w.life, None))
                    else:
                        self._follow(j, w, effect)
                    free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
            elif code < 0:
                self._lend(self.context.now, free, queued, served, sequence, nbytes, samples, applied, updates)
                return "idle"
            else:
                self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates)
                if code in (LOSE, JOIN):
                    self._find_who_waits(queue)
                self._handlers[code](i, data)
                free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
            ticks -= 1
            if samples >= enough or updates >= many or not ticks:
                self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates)
                if (samples >= enough or updates >= many) and watcher.mark():
                    return "watcher"
                if not ticks:
                    ticks = _TICK
                    if watcher.tick():
                        return "watcher"
                free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()

    def _take(self) -> tuple[Any, ...]:
        link, context, ledger = self.link, self.context, self.context.ledger
        counters = (link.free, link.queued, link.served, context.events.sequence, context.bytes)
        return (*counters, ledger.samples, ledger.samples_applied, ledger.updates, self.next_samples, self.next_updates)

    def _lend(self, now: float, *counters: Any) -> None:
        link, context, ledger = self.link, self.context, self.context.ledger
        context.now = now
        link.free, link.queued, link.served, context.events.sequence, context.bytes, *work = counters
        ledger.samples, ledger.samples_applied, ledger.updates = work

    def _find_who_waits(self, queue: list[Any]) -> None:
        """Whose call the server has not answered: those who are there, compute nothing and are not in the queue."""
        coming = {event[1] for event in (*queue, *self.context.events.heap) if event[3] == SERVED}
        self.context.serving.waiting = {
            i for i, w in enumerate(self.workers) if w.alive and w.job is None and i not in coming
        }
