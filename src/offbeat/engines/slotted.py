"""A parameter server's timing without running its rule: event for event what `Sim` gives, many times faster.

Where every gradient is used on arrival and its sender answered at once, the order of service is the order of arrival,
(time, worker), and one heap entry a gradient is enough. The loop notes who was served and when; versions, staleness
and each worker's seconds follow afterwards, in columns. Where simultaneous events would need more than that (two
services that end at the same instant), it gives up and the general loop takes over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import chain, count
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.seeds import BLOCK, Dial, Draws
from offbeat.core.solver import Solver
from offbeat.core.trace import IN_FLIGHT
from offbeat.engines.cluster import Cluster

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Timeline:
    """What happened: the trace, the counters of `Sim`, and each worker's seconds."""

    columns: dict[str, NDArray[Any]]
    """The rows of applied gradients, by column; those left out are null."""
    tail: list[tuple[Any, ...]]
    """The rows of what was in flight at the end, in the order of `Row`."""
    shares: list[dict[str, float]]
    now: float
    updates: int
    bytes: int
    queued: float
    served: float


def why_not(solver: Solver, cluster: Cluster) -> str | None:
    """Why the general loop is needed; None where this one will do."""
    if not solver.answers_at_once:
        return f"{type(solver).__name__} does not apply every gradient on arrival and answer at once"
    if cluster.events:
        return "workers join or are lost"
    if cluster.schedule is not None:
        return "the schedule is scripted"
    if cluster.feeder.mean > 0:
        return "mini-batches come from a feeder"
    return None


def run(
    cluster: Cluster,
    *,
    seed: int,
    nbytes: int = 0,
    batch: int = 1,
    updates: float = inf,
    seconds: float = inf,
    tick: Callable[[int, float], object] = lambda updates, now: None,
) -> Timeline | None:
    """Until so many updates or virtual seconds, whichever is first; None where `Sim` has to do it."""
    link = cluster.transfer_time(nbytes)
    dial = Dial()
    spans = [_Spans(cluster, i, seed, dial) for i in range(cluster.workers)]
    service = None
    if cluster.service.mean > 0:
        service = Draws(cluster.service.sample, seed=seed, stream="service", source=0, dial=dial).next
    served = _serve(spans, link, service, updates, seconds, tick)
    return None if served is None else _Books(cluster, spans, link, served, nbytes, batch).close()


class _Spans:
    """How long each gradient of a worker takes, delays included: `next` in the loop, all of them afterwards."""

    def __init__(self, cluster: Cluster, worker: int, seed: int, dial: Dial) -> None:
        self._sample = cluster.compute_of(worker).sample
        self._extra = [d.sample for d in cluster.delays_of(worker)]
        self._seed, self._worker, self._dial = seed, worker, dial
        self._blocks: list[Floats] = []
        self._delays: list[Floats] = []
        self.next: Callable[[], float] = chain.from_iterable(self._make()).__next__

    def _make(self) -> Iterator[memoryview]:
        for block in count():
            times = self._sample(self._dial.at(self._seed, "compute", self._worker, block), BLOCK)
            if self._extra:
                delay = np.zeros(BLOCK)
                for k, sample in enumerate(self._extra):
                    delay += sample(self._dial.at(self._seed, f"delay{k}", self._worker, block), BLOCK)
                self._delays.append(delay)
                times = times + delay
            self._blocks.append(times)
            yield times.data

    def first(self, n: int) -> tuple[Floats, Floats]:
        """The first n spans, and how much of each is injected delay."""
        spans = np.concatenate(self._blocks)[:n]
        return spans, np.concatenate(self._delays)[:n] if self._extra else np.zeros(n)


@dataclass(frozen=True)
class _Served:
    """Messages in the order of service: whose, and when the server had finished with each."""

    who: Ints
    ends: Floats
    queued: float
    busy: float
    stop: tuple[float, float]
    """(time, worker) of the last event: nothing later has happened."""


def _serve(
    spans: list[_Spans],
    link: float,
    service: Callable[[], float] | None,
    updates: float,
    seconds: float,
    tick: Callable[[int, float], object],
) -> _Served | None:
    """The loop. Arrivals up to the last event are all served, so that the queue of the last moment is known."""
    heap = [(w.next() + link, i) for i, w in enumerate(spans)]
    nexts = [w.next for w in spans]
    heapify(heap)
    who: list[int] = []
    ends: list[float] = []
    serve, note = who.append, ends.append
    free = queued = busy = 0.0
    end = -inf
    stop = (seconds, inf)
    left = updates
    look = 0
    while True:
        arrival = heap[0]
        if arrival >= stop:
            break
        t, i = arrival
        if service is None:
            end = t
        else:
            begins = free if free > t else t
            takes = service()
            queued += begins - t
            busy += takes
            free = begins + takes
            if free == end:
                return None
            end = free
        serve(i)
        note(end)
        # The reply, the gradient and the message, added up as the events would be.
        heapreplace(heap, (end + link + nexts[i]() + link if link else end + nexts[i](), i))
        left -= 1
        if left == 0:
            stop = min(stop, (end, i))
        look += 1
        if look == 10_000:
            look = 0
            tick(len(who), end)
    return _Served(np.array(who, dtype=np.int64), np.array(ends), queued, busy, stop)


class _Books:
    """Everything else, from who was served and when."""

    def __init__(
        self, cluster: Cluster, spans: list[_Spans], link: float, served: _Served, nbytes: int, batch: int
    ) -> None:
        self._cluster, self._link, self._nbytes, self._batch = cluster, link, nbytes, batch
        self._served = served
        W, who, ends = cluster.workers, served.who, served.ends
        # One gradient more than were served for each worker: the one it has begun, or will begin.
        self._counts = np.bincount(who, minlength=W)
        first = np.concatenate(([0], np.cumsum(self._counts + 1)))
        self._last = first[1:] - 1  # where each worker's last gradient lies, gradients ordered by (worker, draw)
        order = np.argsort(who, kind="stable")
        self._place = np.empty(len(who), dtype=np.int64)  # of the k-th service among these gradients
        self._place[order] = np.arange(len(who)) + who[order]
        total = len(who) + W
        pairs = [w.first(n + 1) for w, n in zip(spans, self._counts.tolist(), strict=True)]
        span, self._delay = (np.concatenate(part) for part in zip(*pairs, strict=True))
        self._draw = np.arange(total) - np.repeat(first[:-1], self._counts + 1)
        after = self._place + 1  # the gradient that begins with the reply to this service
        self._sent, self._read = np.zeros(total), np.zeros(total, dtype=np.int64)
        self._sent[after], self._read[after] = ends, np.arange(1, len(who) + 1)
        self._start = self._sent + link
        self._start[first[:-1]] = 0.0  # initial parameters are everywhere at time 0
        self._due = self._start + span
        self._arrive = self._due + link

    def close(self) -> Timeline:
        served, n = self._served, self._batch
        stop, who = served.stop, served.who
        version = int(np.searchsorted(served.ends, stop[0], side="right"))
        now = stop[0]
        done, rows = self._place[:version], np.arange(version)
        columns = {
            "time": served.ends[:version],
            "worker": who[:version],
            "source": who[:version],
            "draw": self._draw[done],
            "version_read": self._read[done],
            "version_applied": rows,
            "staleness": rows - self._read[done],
            "applied": np.ones(version, dtype=bool),
            "loss": np.zeros(version),
            "samples": np.full(version, n),
            "started": self._start[done],
            "computed": self._due[done],
        }
        jobs, travelling = self._unfinished(version, now)
        computed = np.zeros(len(self._due), dtype=bool)
        computed[self._place] = True
        computed[[g for g, kind, _ in travelling if kind == "sent"]] = True
        tail = [self._row(g, i, version, now, "job") for i, g in jobs]
        tail += [self._row(g, i, version, now, kind) for g, kind, (_, i) in sorted(travelling, key=lambda e: e[2])]
        shares = self._shares(computed, [g for _, g in jobs], now, version)
        traffic = self._nbytes * (int(computed.sum()) + version)
        return Timeline(columns, tail, shares, now, version, traffic, served.queued, served.busy)

    def _unfinished(self, version: int, now: float) -> tuple[list[tuple[int, int]], list[Any]]:
        """(worker, gradient) of jobs, and (gradient, kind, event) of what is on a link or with the server."""
        served = self._served
        waiting = {int(served.who[k]): k for k in range(version, len(served.who))}
        jobs: list[tuple[int, int]] = []
        travelling: list[tuple[int, str, tuple[float, int]]] = []
        for i, g in enumerate(self._last.tolist()):
            start, due, arrive = float(self._start[g]), float(self._due[g]), float(self._arrive[g])
            if i in waiting:
                k = waiting[i]
                travelling.append((int(self._place[k]), "sent", (float(served.ends[k]), i)))
            elif self._link and self._draw[g] and (start, i) > served.stop:
                travelling.append((g, "snapshot", (start, i)))
            elif (due, i) >= served.stop:
                jobs.append((i, g))
            else:
                travelling.append((g, "sent", (arrive, i)))
        return jobs, travelling

    def _row(self, g: int, i: int, version: int, now: float, kind: str) -> tuple[Any, ...]:
        read = int(self._read[g])
        draw: int | None = int(self._draw[g])
        begun, done, loss, samples = float(self._start[g]), now, None, 0
        if kind == "sent":  # computed, and not served yet
            done, loss, samples = float(self._due[g]), 0.0, self._batch
        elif kind == "snapshot":  # under way to its worker: it has no batch yet
            begun, draw = now, None
        ends = (None, False, IN_FLIGHT, loss, samples, begun, done, None, None)
        return (now, i, i, draw, read, version, version - read, *ends)

    def _shares(self, computed: NDArray[np.bool_], jobs: list[int], now: float, version: int) -> list[dict[str, float]]:
        W = self._cluster.workers
        begun = computed.copy()
        begun[jobs] = True
        spent = np.where(computed, self._due, now) - self._start
        delayed = np.minimum(self._delay, spent)
        owner = np.repeat(np.arange(W), self._counts + 1)
        busy = np.bincount(owner[begun], (spent - delayed)[begun], minlength=W)
        late = np.bincount(owner[begun], delayed[begun], minlength=W)
        messages = np.bincount(owner[computed], minlength=W) + np.bincount(self._served.who[:version], minlength=W)
        # A message still under way at the end was charged in full when it was sent.
        linked = np.clip(np.minimum(self._link * messages, now - busy - late), 0.0, None)
        idle = np.clip(now - busy - late - linked, 0.0, None)
        names = ("computing", "delayed", "communicating", "waiting")
        return [
            {"present": now, **dict(zip(names, values, strict=True))}
            for values in zip(busy.tolist(), late.tolist(), linked.tolist(), idle.tolist(), strict=True)
        ]
