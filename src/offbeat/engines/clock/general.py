"""The simulator without gradients: any rule, the same events, with the commonest steps written out.

A timing-only simulation has nothing to compute, so all that costs is the loop. Two kinds of events are nearly all there
are: a worker has finished, and the server has served a message. Here they are handled in one place, without a call for
each small step; whatever else happens is left to `Sim`. tests/test_timing.py compares both, event for event.

Where messages pass the server's link one after another, when each is through is known when it sets out. So a message is
served, and a worker goes on with the answer, without an event for each arrival; `_unwind` puts them back at the end.
"""

from bisect import insort
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from offbeat.core.collector import uncollected
from offbeat.core.effects import Applied, Call, Cancel, Grad, Push, Reply, Stepped, View
from offbeat.core.reduction import payload_bytes
from offbeat.core.trace import APPLIED
from offbeat.engines.clock.calendar import END, Calendar
from offbeat.engines.clock.pending import EndlessRounds, IdleComputing, Pending
from offbeat.engines.protocol import Watcher
from offbeat.engines.running.rounds import Rounds
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.event_heap import (
    ARRIVED,
    BACK,
    CANCELLING,
    COMPUTED,
    DELIVERED,
    JOIN,
    LOSE,
    NOTICE,
    SERVED,
)
from offbeat.engines.sim.sim_worker import SimWorker
from offbeat.engines.sim.simulator import Sim

_TICK = 1000  # events between two looks of the watcher: it only shows progress
_IDLE = END[3]  # there is nothing else to come
_FOLLOW = -2  # an answer that asks for something else than a gradient has come


class Timing(Sim):
    """A `Sim` whose task is idle. It cannot be checkpointed, because it need not be: it takes seconds."""

    def _make_computing(self, threads: int, quota: int | None) -> Computing:
        self._limited = quota is not None
        return IdleComputing(self.context, threads=threads, quota=quota)

    def _make_rounds(self, state: Any) -> Rounds:
        return Rounds(self.solver, state) if Push in self.solver.asks else EndlessRounds(self.solver, state)

    def run(self, watcher: Watcher) -> str:
        self.loss_limit = inf
        assert self.context.timing
        assert not self.context.resumable
        linked = self._in_turn()
        if not (self._usual() and (linked or self.link.instant)):
            return super().run(watcher)
        if linked:
            self._requests = {**self._requests, Call: self._call}
        with uncollected():
            self.prepare(watcher)
            heap = self.context.events.heap
            calendar = Calendar([event for event in heap if event[3] == COMPUTED])
            heap[:] = [event for event in heap if event[3] != COMPUTED] + [END]
            heapify(heap)
            queue: list[Any] = []  # what the server has to do is a heap of its own, which is short
            self._last: tuple[float, float] = (-inf, 0)
            try:
                return self._loop(watcher, heap, queue, calendar, linked)
            finally:
                events = [event for event in heap + queue + calendar.rest() if event[3] != _IDLE]
                heap[:] = sorted(self._unwind(events) if linked else events)

    def _usual(self) -> bool:
        """Whether all that is unusual about this cluster is the way to the server, if that."""
        computing, cluster = self.computing, self.cluster
        odd = cluster.slow or cluster.server.shards > 1 or any(loss.notice for loss in cluster.loss)
        plain = self.link.service is not None and computing.scripts is None and not self._limited
        waits = Push not in self.solver.asks  # a worker does nothing else while its message is under way
        return plain and waits and computing.feeder is None and computing.cores is None and not odd

    def _in_turn(self) -> bool:
        """Whether messages pass the server's link one after another and none overtakes another; nobody is lost."""
        ways, cluster = self.link.ways, self.cluster
        narrow = ways is not None and not ways.shares and cluster.bandwidth == inf and self.task.nbytes > 0
        return narrow and not (cluster.events or cluster.loss) and self.solver.asks <= {Grad, Call}

    def _loop(self, watcher: Watcher, heap: list[Any], queue: list[Any], calendar: Calendar, linked: bool) -> str:
        """Gradients that are being computed are on the calendar, what the server has to do is in the queue, and the
        rest in the heap. The counters are local while nobody else looks at them: `_lend` puts them where others do,
        `_take` back.
        """
        workers: list[Any] = self.workers  # whose jobs are gradients here
        server, on_call, note = self.server, self.solver.on_call, self.rows.append
        assert self.link.service is not None
        service, ticks, deadline = self.link.service.next, _TICK, self.deadline
        take, batch, own, draws = self.feed.take, self.feed.batch, self.feed.own, self.feed.draws
        latency, total = self.cluster.latency, self.cluster.server.total
        inward, outward = self.link.ways.free if self.link.ways is not None else (0.0, 0.0)
        free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
        (open_page, page), place, later, pace = calendar.turn(), 0, calendar.later, calendar.pace
        said: Any
        while True:
            if place == len(page):
                (open_page, page), place = calendar.turn(), 0
            event = page[place]
            if queue and queue[0] < event:
                event = heappop(queue) if queue[0] < heap[0] else heappop(heap)
            elif heap[0] < event:
                event = heappop(heap)
            else:
                place += 1
            now, i, _, code, data = event
            if now > deadline:
                heappush(heap, event)
                calendar.close(page[place:])
                self._last = (deadline, inf)
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
                rounds = w.rounds
                effect = rounds.send(data)
                if type(effect) is Call:
                    payload = effect.payload
                    size = payload.value.nbytes if type(payload) is Pending else payload_bytes(payload)
                    nbytes += size
                    sequence += 1
                    if linked:
                        there = now + latency
                        there = inward = (inward if inward > there else there) + size / total
                        w.communicating += there - now
                        begins = free if free > there else there
                        takes = service()
                        free = begins + takes
                        event = (free, i, sequence, SERVED, (w.life, payload, begins - there, takes, there))
                    else:
                        begins = free if free > now else now
                        takes = service()
                        queued += begins - now
                        served += takes
                        free = begins + takes
                        event = (free, i, sequence, SERVED, (w.life, payload))
                    heappush(queue, event)
                    continue  # nothing was applied: no mark can have been reached
                if type(effect) is not Applied:
                    rounds.gradient = data
                self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates, inward, outward)
                self._follow(i, w, effect)
                free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
                inward, outward = self._ways_free()
            elif code == SERVED and (linked or (workers[i].life == data[0] and workers[i].alive)):
                if linked:
                    queued += data[2]
                    served += data[3]
                outgoing: list[Any] = []
                for said in on_call(server, i, data[1]):
                    kind = type(said)
                    if kind is Applied and said.staleness is None and not said.gradient.parts:
                        g, version = said.gradient, said.version
                        read, number = g.version, g.samples
                        tau = None if version is None or read is None else version - read
                        # fmt: off
                        note((now, said.worker, g.source, g.draw, read, version, tau, None, True, APPLIED, 0.0, number,
                              g.started, g.computed, None, None))
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
                    effect, there, view = None, now, None
                    size = 0
                    if type(message) is Reply:
                        view = message.value
                        size = view.x.nbytes if type(view) is View else payload_bytes(view)
                        nbytes += size
                        if not w.alive:
                            continue
                    if linked:
                        there = now + latency
                        there = outward = (outward if outward > there else there) + size / total
                        w.communicating += there - now
                    if view is not None:
                        effect = w.rounds.send(view)
                        if type(effect) is Grad:
                            if own:
                                source, draw = j, draws[j]
                                draws[j] = draw + 1
                            else:
                                source, draw = take(j)
                            at = effect.at
                            w.job = g = Pending(
                                at, 0.0, batch, None, None, None, at, effect.version, source, draw, there
                            )
                            for extra in w.delays:
                                g.delay += extra.next()
                            if linked:
                                g.answer = view
                            sequence += 1
                            due = there + (w.times.next() + g.delay)
                            on = int(due * pace)
                            if on <= open_page:
                                insort(page, (due, j, sequence, COMPUTED, g), place)
                            elif on in later:
                                later[on].append((due, j, sequence, COMPUTED, g))
                            else:
                                calendar.put(on, (due, j, sequence, COMPUTED, g))
                            continue
                    if there > now:
                        sequence += 1
                        code = CANCELLING if effect is None else _FOLLOW
                        heappush(heap, (there, j, sequence, code, (w.life, view) if effect is None else (view, effect)))
                        continue
                    self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates, inward, outward)
                    if effect is None:
                        self.link.cancelling(j, (w.life, None))
                    else:
                        self._follow(j, w, effect)
                    free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
                    inward, outward = self._ways_free()
            elif code == _IDLE:
                calendar.close(page[place:])
                self._lend(self.context.now, free, queued, served, sequence, nbytes, samples, applied, updates)
                return "idle"
            else:
                self._lend(now, free, queued, served, sequence, nbytes, samples, applied, updates, inward, outward)
                if code == _FOLLOW:
                    self._follow(i, workers[i], data[1])
                else:
                    if code in (LOSE, JOIN, NOTICE, BACK):
                        self._find_who_waits(queue)
                    self._handlers[code](i, data)
                free, queued, served, sequence, nbytes, samples, applied, updates, enough, many = self._take()
                inward, outward = self._ways_free()
            ticks -= 1
            if samples >= enough or updates >= many or not ticks:
                self._last = (now, i)
                del page[:place]
                place = 0
                calendar.close(page)
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
        ledger.samples, ledger.samples_applied, ledger.updates, *ways = work
        if ways and link.ways is not None:
            link.ways.free = ways

    def _ways_free(self) -> Any:
        return (0.0, 0.0) if self.link.ways is None else self.link.ways.free

    def _call(self, i: int, w: SimWorker, effect: Call) -> None:
        """A message sets out over the server's link, where the loop itself does not see to it."""
        context, link = self.context, self.link
        assert link.ways is not None
        assert link.service is not None
        size = payload_bytes(effect.payload)
        context.bytes += size
        there = link.ways.first_come(False, context.now, size)
        w.communicating += there - context.now
        begins = link.free if link.free > there else there
        takes = link.service.next()
        link.free = begins + takes
        context.events.push(link.free, i, SERVED, (w.life, effect.payload, begins - there, takes, there))

    def _unwind(self, events: list[Any]) -> list[Any]:
        """What is on the server's link at the end, as `Sim` has it: messages and answers that have not arrived."""
        found, link = [], self.link
        for event in sorted(events):
            time, i, sequence, code, data = event
            w: Any = self.workers[i]
            if code == SERVED:
                *letter, wait, takes, there = data
                if (there, i) < self._last:
                    link.queued += wait
                    link.served += takes
                    event = (time, i, sequence, SERVED, tuple(letter))
                else:
                    event = (there, i, sequence, ARRIVED, tuple(letter))
            elif code == COMPUTED and w.job is data and (data.started, i) > self._last:
                w.job = None
                self.feed.draws[i] -= 1  # it has not begun
                event = (data.started, i, sequence, DELIVERED, (w.life, data.answer))
            elif code == _FOLLOW:
                event = (time, i, sequence, DELIVERED, (w.life, data[0]))
            found.append(event)
        return found

    def _find_who_waits(self, queue: list[Any]) -> None:
        """Whose call the server has not answered: those who are there, compute nothing and are not in the queue."""
        coming = {event[1] for event in (*queue, *self.context.events.heap) if event[3] == SERVED}
        self.context.serving.waiting = {
            i for i, w in enumerate(self.workers) if w.alive and w.job is None and i not in coming
        }
