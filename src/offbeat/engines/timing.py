"""The simulator without gradients: any rule, the same events, with the commonest steps written out.

A timing-only simulation has nothing to compute, so all that costs is the loop. Two kinds of events are nearly all there
are: a worker has finished, and the server has served a message. Here they are handled in one place, without a call for
each small step; whatever else happens is left to `Sim`. tests/test_timing.py compares both, event for event.
"""

import gc
from heapq import heappop, heappush
from math import inf
from typing import Any

from offbeat.core.effects import Applied, Call, Cancel, Grad, Gradient, Reply, Stepped, View
from offbeat.core.reduction import payload_bytes
from offbeat.core.solver import Round, Solver
from offbeat.core.trace import APPLIED
from offbeat.engines.engine import Watcher
from offbeat.engines.sim import COMPUTED, SERVED, Sim
from offbeat.engines.slot import WorkerSlot

_TICK = 1000  # events between two looks of the watcher: it only shows progress


class Pending(Gradient, eq=False, gc=False):
    """A gradient that needs no computing: it is its own job."""

    delay: float = 0.0


class Timing(Sim):
    """A `Sim` whose task is idle. It cannot be checkpointed, because it need not be: it takes seconds."""

    def run(self, watcher: Watcher) -> str:
        self.loss_limit = inf
        assert self._timing
        assert not self.resumable
        plain = self._instant and self.service is not None and self._scripts is None and self._quota is None
        if not plain or self.feeder is not None:
            return super().run(watcher)
        self.prepare(watcher)
        heap = self.heap
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
        assert self.service is not None
        service, ticks, deadline = self.service.next, _TICK, self.deadline
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
                w.gradient = data
                effect = w.round.send(data)
                if type(effect) is Call:
                    w.gradient = None
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
                        self.announce(said)
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
                        effect = w.round.send(view)
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
                        self._on_cancelling(j, (w.life, None))
                    else:
                        self._follow(j, w, effect)
                    free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
            elif code < 0:
                self._lend(self.now, free, queued, served, sequence, nbytes, samples, applied, updates)
                return "idle"
            else:
                self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates)
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
        counters = (self.free, self.queued, self.served, self.sequence, self.bytes)
        return (*counters, self.samples, self.samples_applied, self.updates, self.next_samples, self.next_updates)

    def _lend(self, now: float, *counters: Any) -> None:
        self.now, (self.free, self.queued, self.served, self.sequence, self.bytes, *work) = now, counters
        self.samples, self.samples_applied, self.updates = work

    def _start_round(self, w: WorkerSlot) -> None:
        w.round = _rounds(self.solver, w)

    def _compute_from_now(self, i: int, w: WorkerSlot, effect: Grad) -> None:
        source, draw = self.feed.take(i)
        g = Pending(
            effect.at, 0.0, self.feed.batch, None, None, None, effect.at, effect.version, source, draw, self.now
        )
        if self._scripts is None:
            for delay in w.delays:
                g.delay += delay.next()
            due = self.now + (w.times.next() + g.delay)
        else:
            due = self._scripted(i, w)
        w.job = g  # type: ignore[assignment]  # it is its own job
        if due < inf:
            self.push(due, i, COMPUTED, g)

    def _on_computed(self, i: int, job: Any) -> None:
        w: Any = self.workers[i]
        if w.job is not job:
            return
        w.job, w.gradient, job.computed, job.work = None, job, self.now, self.samples
        w.samples += job.samples
        w.charge(job, self.now)
        self._advance(i, w, job)


def _rounds(solver: Solver, w: WorkerSlot) -> Round:
    """One round after another: that the next one begins where one ends costs nothing here."""
    while True:
        yield from solver.round(w.state)
        w.gradient = None
