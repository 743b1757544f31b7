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
from offbeat.core.trace import APPLIED, staleness
from offbeat.engines.engine import Watcher
from offbeat.engines.sim import COMPUTED, SERVED, Sim
from offbeat.engines.slot import WorkerSlot

_TICK = 1000  # events between two looks of the watcher: it only shows progress


class Pending(Gradient):
    """A gradient that needs no computing: it is its own job."""

    __slots__ = ("delay",)

    def __init__(self, at: Any, version: int | None, source: int, draw: int, started: float, samples: int) -> None:
        self.value = self.at = at
        self.version, self.source, self.draw, self.started, self.samples = version, source, draw, started, samples
        self.loss, self.delay, self.parts = 0.0, 0.0, ()
        self.buffers = self.correct = self.norm = None


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
        workers: list[Any] = self.workers  # whose jobs are gradients here
        server, solver, rows = self.server, self.solver, self.rows
        assert self.service is not None
        service, ticks, deadline = self.service.next, _TICK, self.deadline
        take, batch = self.feed.take, self.feed.batch
        said: Any
        while True:
            event = heappop(queue) if queue and queue[0] < heap[0] else heappop(heap)
            now, i, _, code, data = event
            if now > deadline:
                heappush(heap, event)
                self.now = deadline
                return "seconds"
            self.now = now
            if code == COMPUTED:
                w = workers[i]
                if w.job is not data:
                    continue  # cancelled, or its worker was lost
                w.job, w.gradient, data.computed, data.work = None, data, now, self.samples
                w.samples += data.samples
                spent = now - data.started
                delay = data.delay if data.delay < spent else spent
                w.delayed += delay
                w.computing += spent - delay
                try:
                    effect = w.round.send(data)
                except StopIteration:
                    w.gradient = None
                    w.round = solver.round(w.state)
                    effect = self._ask(w, None)
                if type(effect) is Call:
                    w.gradient = None
                    payload = effect.payload
                    self.bytes += payload.value.nbytes if type(payload) is Pending else payload_bytes(payload)
                    begins = self.free if self.free > now else now
                    takes = service()
                    self.queued += begins - now
                    self.served += takes
                    self.free = begins + takes
                    self.sequence += 1
                    heappush(queue, (self.free, i, self.sequence, SERVED, (w.life, payload)))
                else:
                    self._follow(i, w, effect)
            elif code == SERVED and workers[i].life == data[0] and workers[i].alive:
                outgoing: list[Any] = []
                for said in solver.on_call(server, i, data[1]):
                    kind = type(said)
                    if kind is Applied and said.staleness is None and not said.gradient.parts:
                        g, version = said.gradient, said.version
                        rows.append(
                            (
                                now,
                                said.worker,
                                g.source,
                                g.draw,
                                g.version,
                                version,
                                staleness(version, g.version),
                                None,
                                True,
                                APPLIED,
                                0.0,
                                g.samples,
                                g.started,
                                g.computed,
                                None,
                                None,
                            )
                        )
                        self.samples += g.samples
                        self.samples_applied += g.samples
                    elif kind is Stepped:
                        self.updates += 1
                    elif kind is Reply or kind is Cancel:
                        outgoing.append(said)
                    else:
                        self.announce(said)
                for message in outgoing:
                    j = message.worker
                    w = workers[j]
                    if type(message) is Cancel:
                        self._on_cancelling(j, (w.life, None))
                        continue
                    view = message.value
                    self.bytes += view.x.nbytes if type(view) is View else payload_bytes(view)
                    if not w.alive:
                        continue
                    try:
                        effect = w.round.send(view)
                    except StopIteration:
                        w.gradient = None
                        w.round = solver.round(w.state)
                        effect = self._ask(w, None)
                    if type(effect) is Grad:
                        source, draw = take(j)
                        w.job = g = Pending(effect.at, effect.version, source, draw, now, batch)
                        for extra in w.delays:
                            g.delay += extra.next()
                        self.sequence += 1
                        heappush(heap, (now + (w.times.next() + g.delay), j, self.sequence, COMPUTED, g))
                    else:
                        self._follow(j, w, effect)
            elif code < 0:
                return "idle"
            else:
                self._handlers[code](i, data)
            if (self.samples >= self.next_samples or self.updates >= self.next_updates) and watcher.mark():
                return "watcher"
            ticks -= 1
            if not ticks:
                ticks = _TICK
                if watcher.tick():
                    return "watcher"

    def _compute_from_now(self, i: int, w: WorkerSlot, effect: Grad) -> None:
        source, draw = self.feed.take(i)
        g = Pending(effect.at, effect.version, source, draw, self.now, self.feed.batch)
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
