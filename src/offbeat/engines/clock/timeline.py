"""What happened in a run of the clock alone: everything follows in columns from who was served and when."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.seeds import BLOCK, Dial
from offbeat.core.trace import IN_FLIGHT
from offbeat.engines.cluster import Cluster

Floats = NDArray[np.float64]


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


class GradientSpans:
    """How long each gradient of a worker takes, delays included: `next` in the loop, all of them afterwards."""

    def __init__(self, cluster: Cluster, worker: int, seed: int, dial: Dial, batch: int) -> None:
        self._times = cluster.draw_times(worker, lambda first, n: batch, seed=seed, dial=dial)
        self._extra = [d.sample for d in cluster.delays_of(worker)]
        self._seed, self._worker, self._dial = seed, worker, dial
        self._blocks: list[Floats] = []
        self._delays: list[Floats] = []
        self.next: Callable[[], float] = chain.from_iterable(self._make()).__next__

    def _make(self) -> Iterator[memoryview]:
        for block in count():
            times = self._times.block(block)
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


class Through:
    """The server's own link, passed one after another: its state, and when messages and answers were through."""

    def __init__(self, cluster: Cluster, nbytes: int) -> None:
        self.latency, self.wire, self.own = cluster.latency, nbytes / cluster.server.total, nbytes / cluster.bandwidth
        self.inward = self.outward = 0.0  # busy until then
        self.there: list[float] = []  # of each message that was served: when it arrived ...
        self.ready: list[float] = []  # ... and when its worker had the answer
        self.arrive: dict[int, float] = {}  # by worker: of a message that is under way at the end


@dataclass
class Desk:
    """The server: messages in the order of service, whose each was and when it was finished with it."""

    service: Callable[[], float] | None
    who: list[int]
    ends: list[float]
    free: float = 0.0
    queued: float = 0.0
    busy: float = 0.0
    stop: tuple[float, float] = (inf, inf)
    """(time, worker) of the last event: nothing later has happened."""
    through: Through | None = None
    """The link in front of it, where it is narrow."""


class Accounts:
    """Everything else, from who was served and when."""

    def __init__(
        self, cluster: Cluster, spans: list[GradientSpans], link: float, desk: Desk, nbytes: int, batch: int
    ) -> None:
        self._cluster, self._link, self._nbytes, self._batch = cluster, link, nbytes, batch
        self._desk = desk
        W = cluster.workers
        self._who, self._ends = who, ends = np.array(desk.who, dtype=np.int64), np.array(desk.ends, dtype=np.float64)
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
        through = desk.through
        self._travels = bool(link) or through is not None
        self._start = self._sent + link
        if through is not None:
            self._start[after] = through.ready
        self._start[first[:-1]] = 0.0  # initial parameters are everywhere at time 0
        self._due = self._start + span
        self._arrive = self._due + link
        if through is not None:
            self._arrive[self._place] = through.there
            for i, there in through.arrive.items():
                self._arrive[self._last[i]] = there

    def close(self) -> Timeline:
        desk, n, who, ends, stop = self._desk, self._batch, self._who, self._ends, self._desk.stop
        version = int(np.searchsorted(ends, stop[0], side="right"))
        now = stop[0]
        done, rows = self._place[:version], np.arange(version)
        columns = {
            "time": ends[:version],
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
        return Timeline(columns, tail, shares, now, version, traffic, desk.queued, desk.busy)

    def _unfinished(self, version: int, now: float) -> tuple[list[tuple[int, int]], list[Any]]:
        """(worker, gradient) of jobs, and (gradient, kind, event) of what is on a link or with the server."""
        desk, ends = self._desk, self._ends
        waiting = {int(self._who[k]): k for k in range(version, len(self._who))}
        jobs: list[tuple[int, int]] = []
        travelling: list[tuple[int, str, tuple[float, int]]] = []
        for i, g in enumerate(self._last.tolist()):
            start, due, arrive = float(self._start[g]), float(self._due[g]), float(self._arrive[g])
            if i in waiting:
                k = waiting[i]
                travelling.append((int(self._place[k]), "sent", (float(ends[k]), i)))
            elif self._travels and self._draw[g] and (start, i) > desk.stop:
                travelling.append((g, "snapshot", (start, i)))
            elif (due, i) >= desk.stop:
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
        linked = self._on_links(computed, owner, version)
        # A message still under way at the end was charged in full when it was sent.
        linked = np.clip(np.minimum(linked, now - busy - late), 0.0, None)
        idle = np.clip(now - busy - late - linked, 0.0, None)
        names = ("computing", "delayed", "communicating", "waiting")
        return [
            {"present": now, **dict(zip(names, values, strict=True))}
            for values in zip(busy.tolist(), late.tolist(), linked.tolist(), idle.tolist(), strict=True)
        ]

    def _on_links(self, computed: NDArray[np.bool_], owner: NDArray[np.int64], version: int) -> Floats:
        """Seconds that each worker's messages and answers were under way."""
        W, who = self._cluster.workers, self._who[:version]
        if self._desk.through is None:
            messages = np.bincount(owner[computed], minlength=W) + np.bincount(who, minlength=W)
            return np.asarray(self._link * messages, dtype=np.float64)
        there = np.bincount(owner[computed], (self._arrive - self._due)[computed], minlength=W)
        answers = np.array(self._desk.through.ready[:version]) - self._ends[:version]
        return np.asarray(there + np.bincount(who, answers, minlength=W), dtype=np.float64)
