"""A parameter server's timing without running its rule: event for event what `Sim` gives, many times faster.

Where every gradient is used on arrival and its sender answered at once, the order of service is the order of arrival,
(time, worker), and one heap entry a gradient is enough. The loop notes who was served and when; versions, staleness
and each worker's seconds follow afterwards, in columns. Where simultaneous events would need more than that (two
services that end at the same instant), it gives up and the general loop takes over.
"""

from collections.abc import Callable
from heapq import heapify, heapreplace
from itertools import chain
from math import inf

import numpy as np

from offbeat.core.effects import Push
from offbeat.core.seeds import Dial, Draws
from offbeat.core.solver import Solver
from offbeat.engines.clock.link_columns import serve_through, windows_through
from offbeat.engines.clock.timeline import Accounts, Desk, Floats, GradientSpans, Through, Timeline
from offbeat.engines.cluster import Cluster

Tick = Callable[[int, float], object]
"""Told now and then how many updates there were, and the time."""

MANY = 400  # workers from which on it pays to serve a window of arrivals at a time


def why_not(solver: Solver, cluster: Cluster) -> str | None:
    """Why the general loop is needed; None where this one will do."""
    if Push in solver.asks:
        return "workers compute while their messages are under way"
    if not solver.answers_at_once:
        return f"{type(solver).__name__} does not apply every gradient on arrival and answer at once"
    if cluster.events or cluster.loss:
        return "workers join or are lost"
    if cluster.slow:
        return "workers are slow at times"
    if cluster.cores is not None:
        return "workers share cores"
    if cluster.server.sharing != "fifo":
        return "messages share the server's link"
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
    tick: Tick = lambda updates, now: None,
) -> Timeline | None:
    """Until so many updates or virtual seconds, whichever is first; None where `Sim` has to do it."""
    through = Through(cluster, nbytes) if nbytes and cluster.server.bandwidth < inf else None
    link = 0.0 if through is not None else cluster.transfer_time(nbytes)
    dial = Dial()
    spans = [GradientSpans(cluster, i, seed, dial, batch) for i in range(cluster.workers)]
    service = None
    if cluster.service.mean > 0:
        service = Draws(cluster.service.sample, seed=seed, stream="service", source=0, dial=dial).next
        if (shards := cluster.server.shards) > 1:
            whole = service
            service = lambda: whole() / shards  # noqa: E731  # each has its part to do
    desk = Desk(service, [], [], stop=(seconds, inf), through=through)
    t = np.array([w.next() for w in spans]) + link
    nexts = [w.next for w in spans]
    if cluster.workers >= MANY:
        coming = (_in_windows if through is None else windows_through)(desk, spans, t, link, updates, tick)
        if coming is None:
            return None
        nexts = [chain((span,), iter(w.next, None)).__next__ for span, w in zip(coming.tolist(), spans, strict=True)]
    serve = _one_by_one if through is None else serve_through
    if not serve(desk, [(a, i) for i, a in enumerate(t.tolist())], nexts, link, updates):
        return None
    return Accounts(cluster, spans, link, desk, nbytes, batch).close()


def _in_windows(
    desk: Desk, spans: list[GradientSpans], t: Floats, link: float, updates: float, tick: Tick
) -> Floats | None:
    """Serves many arrivals at a time, as long as the end is not near; each worker's span to come, or None for a tie.

    Nobody comes again before the earliest (arrival + next span), so all arrivals before that are known and can be
    sorted at once. `t` is left with the next arrival of each worker.
    """
    nexts = [w.next for w in spans]
    coming = np.array([draw() for draw in nexts])
    service, free = desk.service, desk.free
    while True:
        window = np.flatnonzero(t < (t + coming).min())
        if not len(window):  # the first to come takes no time at all for its next gradient: it is served alone
            window = np.array([t.argmin()])
        window = window[np.argsort(t[window], kind="stable")]
        times = t[window]
        if len(desk.who) + len(window) >= updates or times[-1] >= desk.stop[0]:
            return coming
        done = times.tolist()
        if service is not None:
            for k, a in enumerate(done):
                begins = free if free > a else a
                takes = service()
                desk.queued += begins - a
                desk.busy += takes
                done[k] = free = begins + takes
            ended = desk.ends[-1:] + done
            if len(set(ended)) < len(ended):
                return None
        workers = window.tolist()
        desk.who += workers
        desk.ends += done
        desk.free = free
        t[window] = np.array(done) + link + coming[window] + link
        coming[window] = [nexts[i]() for i in workers]
        tick(len(desk.who), done[-1])


def _one_by_one(
    desk: Desk, arrivals: list[tuple[float, int]], nexts: list[Callable[[], float]], link: float, updates: float
) -> bool:
    """Serves to the end, arrivals of the last moment too, so that its queue is known; False for a tie."""
    heap = arrivals
    heapify(heap)
    serve, note, service = desk.who.append, desk.ends.append, desk.service
    free, queued, busy, stop = desk.free, desk.queued, desk.busy, desk.stop
    end = desk.ends[-1] if desk.ends else -inf
    left, limit = updates - len(desk.who), stop[0]
    while True:
        t, i = heap[0]
        if t >= limit and (t, i) >= stop:
            break
        if service is None:
            end = t
        else:
            begins = free if free > t else t
            takes = service()
            queued += begins - t
            busy += takes
            free = begins + takes
            if free == end:
                return False
            end = free
        serve(i)
        note(end)
        # The reply, the gradient and the message, added up as the events would be.
        heapreplace(heap, (end + link + nexts[i]() + link if link else end + nexts[i](), i))
        left -= 1
        if not left:
            stop = min(stop, (end, i))
            limit = stop[0]
    desk.queued, desk.busy, desk.stop = queued, busy, stop
    return True
