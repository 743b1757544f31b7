"""A naive asynchronous server that is told when each gradient finishes, and what a trace must add up to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Update(NamedTuple):
    worker: int
    read: int
    tau: int
    x: Any


def asgd(
    x0: Any,
    finishes: Sequence[tuple[float, int]],
    gradient: Callable[[Any, int, int], Any],
    step: Callable[[Any, Any], Any],
    workers: int,
) -> list[Update]:
    """Every worker starts at x0. At each (time, worker), in that order, its gradient is applied and it reads again.

    `gradient(x_read, worker, k)` is the worker's k-th; `step(x, g)` gives the next x. All versions are kept in a list,
    so that nothing can alias anything.
    """
    versions = [x0]
    read = [0] * workers
    count = [0] * workers
    done = []
    for _, w in sorted(finishes):
        t = len(versions) - 1
        g = gradient(versions[read[w]], w, count[w])
        versions.append(step(versions[t], g))
        done.append(Update(w, read[w], t - read[w], versions[-1]))
        read[w], count[w] = t + 1, count[w] + 1
    return done


def constant_delay(
    x0: Any, steps: int, delay: int, gradient: Callable[[Any, int], Any], step: Callable[[Any, Any], Any]
) -> list[Any]:
    """x_0, x_1, ...: update n uses the gradient number n, taken at x_{n - d}, or at x_0 before there is one."""
    xs = [x0]
    for n in range(steps):
        xs.append(step(xs[n], gradient(xs[max(0, n - delay)], n)))
    return xs


def ages_and_snapshots(rows: Sequence[Mapping[str, Any]], link: float) -> tuple[int, int]:
    """Both sides of the conservation law, from the trace alone.

    Left: the staleness of what was applied and the ages of all that was not, as the trace says. Right: the sum over
    updates of (live snapshots - 1), counted on the clock: a snapshot lives from the moment the server sent it
    (`started` less the time on the link) to the moment its gradient ended. Times must be distinct.
    """
    left = sum(r["staleness"] for r in rows)
    right = 0
    for n, update in enumerate(rows):
        if update["outcome"] != "applied":
            continue
        at = update["time"]
        for m, other in enumerate(rows):
            sent_before = other["started"] - link < at - 1e-9
            ended_before = m < n
            if m == n or (sent_before and not ended_before):  # itself too, though it took no time at all
                right += 1
        right -= 1
    return left, right
