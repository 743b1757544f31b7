"""Asynchronous SGD whose workers compute while their messages are under way: a slow and plain event loop of its own."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple


class Update(NamedTuple):
    time: float
    worker: int
    read: int
    tau: int
    x: Any


def asgd(
    x0: Any,
    durations: Sequence[Sequence[float]],
    latency: float,
    service: float,
    gradient: Callable[[Any, int, int], Any],
    step: Callable[[Any, Any], Any],
    updates: int,
) -> list[Update]:
    """`durations[i][k]` is how long worker i computes its k-th gradient; `gradient(x_read, worker, k)` is that one.

    A worker goes on when it has computed a gradient and its last message is answered: it sends the gradient, and begins
    the next one at the parameters that it was answered last. Times must be distinct.
    """
    versions, done = [x0], []
    workers = range(len(durations))
    view, count = [0 for _ in workers], [0 for _ in workers]
    computed: list[Any] = [None for _ in workers]  # (version read, gradient) that waits to be sent
    answered = [True for _ in workers]
    heap: list[Any] = []
    free = 0.0

    def begin(i: int, now: float) -> None:
        k = count[i]
        count[i] += 1
        made = (view[i], gradient(versions[view[i]], i, k))
        heappush(heap, (now + durations[i][k], "computed", i, made))

    def go_on(i: int, now: float) -> None:
        if computed[i] is not None and answered[i]:
            heappush(heap, (now + latency, "arrived", i, computed[i]))
            computed[i], answered[i] = None, False
            begin(i, now)

    for i in workers:
        begin(i, 0.0)
    while len(done) < updates:
        now, what, i, data = heappop(heap)
        if what == "computed":
            computed[i] = data
            go_on(i, now)
        elif what == "arrived":
            free = max(free, now) + service
            heappush(heap, (free, "served", i, data))
        elif what == "served":
            read, g = data
            t = len(versions) - 1
            versions.append(step(versions[t], g))
            done.append(Update(now, i, read, t - read, versions[-1]))
            heappush(heap, (now + latency, "answered", i, t + 1))
        else:
            view[i], answered[i] = data, True
            go_on(i, now)
    return done
