"""The loops of `columns.py` where every message passes the server's own link, one after another, in and out.

Messages arrive in the order in which they set out, so one heap entry a gradient is still enough: when it is computed.
What takes its way to the server when all is over was not served; `Through.arrive` says when it would have arrived.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from math import inf

import numpy as np

from offbeat.engines.clock.timeline import Desk, Floats, GradientSpans

Tick = Callable[[int, float], object]


def serve_through(
    desk: Desk, calls: list[tuple[float, int]], nexts: list[Callable[[], float]], _: float, updates: float
) -> bool:
    """Serves to the end, arrivals of the last moment too; False for a tie."""
    heap, way, service = calls, desk.through, desk.service
    assert way is not None
    heapify(heap)
    latency, wire, own, inward, outward = way.latency, way.wire, way.own, way.inward, way.outward
    free, queued, busy, stop = desk.free, desk.queued, desk.busy, desk.stop
    serve, note, arrived, ready = desk.who.append, desk.ends.append, way.there.append, way.ready.append
    end = desk.ends[-1] if desk.ends else -inf
    there = way.there[-1] if way.there else -inf
    left = updates - len(desk.who)
    while heap:
        t, i = heap[0]
        if (t, i) >= stop:
            break
        before, first = there, t + latency
        inward = (inward if inward > first else first) + wire
        last = first + own
        there = inward if inward > last else last
        if there == before:
            return False
        if (there, i) >= stop:
            way.arrive[i] = there
            heappop(heap)
            continue
        if service is None:
            end = there
        else:
            begins = free if free > there else there
            takes = service()
            queued += begins - there
            busy += takes
            free = begins + takes
            if free == end:
                return False
            end = free
        first = end + latency
        outward = (outward if outward > first else first) + wire
        last = first + own
        back = outward if outward > last else last
        serve(i)
        note(end)
        arrived(there)
        ready(back)
        heapreplace(heap, (back + nexts[i](), i))
        left -= 1
        if not left:
            stop = min(stop, (end, i))
    desk.queued, desk.busy, desk.stop = queued, busy, stop
    return True


def windows_through(
    desk: Desk, spans: list[GradientSpans], t: Floats, _: float, updates: float, tick: Tick
) -> Floats | None:
    """Serves many at a time, as long as the end is not near; each worker's span to come, or None for a tie.

    Nobody calls again before the earliest (call + next span). `t` is left with the next call of each worker.
    """
    nexts = [w.next for w in spans]
    coming = np.array([draw() for draw in nexts])
    way, service, free = desk.through, desk.service, desk.free
    assert way is not None
    latency, wire, own, inward, outward = way.latency, way.wire, way.own, way.inward, way.outward
    while True:
        window = np.flatnonzero(t < (t + coming).min())
        if not len(window):  # the first to come takes no time at all for its next gradient: it is served alone
            window = np.array([t.argmin()])
        window = window[np.argsort(t[window], kind="stable")]
        arrivals, entering = [], inward
        for call in t[window].tolist():
            first = call + latency
            entering = (entering if entering > first else first) + wire
            last = first + own
            arrivals.append(entering if entering > last else last)
        if len(desk.who) + len(window) >= updates or arrivals[-1] >= desk.stop[0]:
            desk.free = free
            way.inward, way.outward = inward, outward
            return coming
        inward = entering
        done, back = arrivals, []
        if service is not None:
            done = []
            for a in arrivals:
                begins = free if free > a else a
                takes = service()
                desk.queued += begins - a
                desk.busy += takes
                free = begins + takes
                done.append(free)
            ended = desk.ends[-1:] + done
            if len(set(ended)) < len(ended):
                return None
        came = way.there[-1:] + arrivals
        if len(set(came)) < len(came):
            return None
        for end in done:
            first = end + latency
            outward = (outward if outward > first else first) + wire
            last = first + own
            back.append(outward if outward > last else last)
        workers = window.tolist()
        desk.who += workers
        desk.ends += done
        way.there += arrivals
        way.ready += back
        t[window] = np.array(back) + coming[window]
        coming[window] = [nexts[i]() for i in workers]
        tick(len(desk.who), done[-1])
