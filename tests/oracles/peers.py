"""Methods without a parameter server, by hand: plain loops over lists of numpy vectors, sets written out as sets.

A gradient is `gradient(x, worker, k)`: the worker's k-th, at x.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray
GradientAt = Callable[[Vector, int, int], Vector]


def easgd(
    xs: Sequence[Vector], xc: Vector, rounds: int, gradient: GradientAt, *, eta: float, alpha: float, period: int = 1
) -> tuple[list[Vector], list[Vector]]:
    """Round-robin EASGD of equal workers: the workers at the end, and the centre after every round."""
    xs, centres = list(xs), []
    for k in range(rounds):
        before = list(xs)
        for j in range(len(xs)):
            d = alpha * (xs[j] - xc) if k % period == 0 else 0.0 * xc
            xs[j] = xs[j] - d
            xc = xc + d
        for j in range(len(xs)):
            xs[j] = xs[j] - eta * gradient(before[j], j, k)
        centres.append(xc)
    return xs, centres


def eamsgd(
    xs: Sequence[Vector], xc: Vector, rounds: int, gradient: GradientAt, *, eta: float, alpha: float, delta: float
) -> tuple[list[Vector], list[Vector], Vector]:
    xs, vs = list(xs), [0.0 * x for x in xs]
    for k in range(rounds):
        points = [x + delta * v for x, v in zip(xs, vs, strict=True)]
        for j in range(len(xs)):
            d = alpha * (xs[j] - xc)
            xs[j] = xs[j] - d
            xc = xc + d
        for j in range(len(xs)):
            vs[j] = delta * vs[j] - eta * gradient(points[j], j, k)
            xs[j] = xs[j] + vs[j]
    return xs, vs, xc


def local(
    x0: Vector,
    workers: int,
    meetings: int,
    gradient: GradientAt,
    *,
    H: int,
    eta: float,
    mu: float = 0.0,
    moments: str = "local",
    outer: Callable[[Vector, Vector], Vector] = lambda x0, mean: mean,
) -> Vector:
    """Local heavy-ball SGD; after every H steps `outer(x_0, mean)` says where all go on. The last common point."""
    xs, vs = [x0] * workers, [0.0 * x0] * workers
    k = 0
    for _ in range(meetings):
        for _ in range(H):
            for i in range(workers):
                vs[i] = mu * vs[i] + gradient(xs[i], i, k)
                xs[i] = xs[i] - eta * vs[i]
            k += 1
        x0 = outer(x0, np.mean(xs, axis=0))
        xs = [x0] * workers
        if moments == "average":
            vs = [np.mean(vs, axis=0)] * workers
        elif moments == "reset":
            vs = [0.0 * x0] * workers
    return x0


class SlowMomentum:
    def __init__(self, gamma: float, beta: float, alpha: float) -> None:
        self.gamma, self.beta, self.alpha, self.u = gamma, beta, alpha, 0.0

    def __call__(self, x0: Vector, mean: Vector) -> Vector:
        self.u = self.beta * self.u + (x0 - mean) / self.gamma
        return x0 - self.alpha * self.gamma * self.u


class OuterNesterov:
    def __init__(self, lr: float, beta: float) -> None:
        self.lr, self.beta, self.m = lr, beta, 0.0

    def __call__(self, x0: Vector, mean: Vector) -> Vector:
        D = x0 - mean
        self.m = self.beta * self.m + D
        return x0 - self.lr * (D + self.beta * self.m)


def push_sum(x0: Vector, workers: int, rounds: int, gradient: GradientAt, *, eta: float) -> Vector:
    """Synchronous SGP with the matrix of every round written out. Rows of the answer are the z_i."""
    x = np.array([x0] * workers)
    w = np.ones(workers)
    hops = [h for h in (2**n for n in range(30)) if h < workers]
    for k in range(rounds):
        x = np.array([x[i] - eta * gradient(x[i] / w[i], i, k) for i in range(workers)])
        P = np.zeros((workers, workers))
        for i in range(workers):
            P[i, i] += 0.5
            P[(i + hops[k % len(hops)]) % workers, i] += 0.5
        x, w = P @ x, P @ w
    return x / w[:, None]


def adpsgd(
    xs: Sequence[Vector], events: Sequence[tuple[int, int]], gradient: GradientAt, *, eta: float
) -> list[Vector]:
    """In each event (worker, neighbour) the worker's gradient, taken where it was after its last one, has arrived."""
    xs, k = list(xs), [0] * len(xs)
    read = list(xs)
    for i, j in events:
        g = gradient(read[i], i, k[i])
        mean = (xs[i] + xs[j]) / 2
        xs[i], xs[j] = mean - eta * g, mean
        read[i], k[i] = xs[i], k[i] + 1
    return xs


class Application(NamedTuple):
    time: float
    model: int
    gradient: tuple[int, int]  # (who computed it, its how-manieth)
    staleness: int


def all_to_all(
    x0: Vector,
    finishes: Sequence[tuple[float, int]],
    latency: Callable[[int, int], float],
    gradient: GradientAt,
    workers: int,
    *,
    eta: float,
) -> tuple[list[Vector], list[set[tuple[int, int]]], list[Application]]:
    """Sets of gradients as sets. Times of all events must differ, but for arrivals at different models."""
    x = [x0] * workers
    done: list[set[tuple[int, int]]] = [set() for _ in range(workers)]
    begun = [(x0, frozenset[tuple[int, int]]())] * workers
    count = [0] * workers
    out = []
    events: list[tuple[float, int, Any]] = [(t, w, None) for t, w in finishes]
    while events:
        events.sort(key=lambda e: e[:2])
        time, w, message = events.pop(0)
        if message is None:
            name = (w, count[w])
            at, basis = begun[w]
            d = -eta * gradient(at, w, count[w])
            count[w] += 1
            events += [(time + latency(w, j), j, (name, d, basis)) for j in range(workers) if j != w]
        else:
            name, d, basis = message
        out.append(Application(time, w, name, len(basis ^ done[w])))
        x[w] = x[w] + d
        done[w].add(name)
        if message is None:
            begun[w] = (x[w], frozenset(done[w]))
    return x, done, out


def hogwild(
    x0: Vector,
    computes: Sequence[Sequence[float]],
    gradient: GradientAt,
    *,
    eta: float,
    memory: float,
    chunks: int,
    atomic: bool,
) -> tuple[Vector, int, int]:
    """Threads without a lock: their times are known beforehand, so all single operations are, and are done in order.

    Every thread reads chunk after chunk, computes, and adds chunk after chunk. x at the end, and how many coordinates
    were added to and how many of these adds are not in x any more.
    """
    n = len(x0)
    parts = [range(k * n // chunks, (k + 1) * n // chunks) for k in range(chunks)]
    share = memory / chunks
    operations: list[tuple[float, int, int, str, int]] = []  # time, order among simultaneous ones, thread, what, chunk
    for thread, times in enumerate(computes):
        t = 0.0
        for compute in times:
            for k in range(chunks):
                t = t + share
                operations.append((t, 1, thread, "read", k))
            t = t + compute
            operations.append((t, 2, thread, "compute", 0))
            for k in range(chunks):
                operations.append((t, 3, thread, "begin", k))
                t = t + share
                operations.append((t, 0, thread, "end", k))
    x = np.array(x0)
    holds: list[set[Any]] = [set() for _ in range(n)]  # which adds are in a coordinate
    seen = [np.array(x0) for _ in computes]
    saw: list[dict[int, tuple[float, set[Any]]]] = [{} for _ in computes]
    g: list[Any] = [None] * len(computes)
    count = [0] * len(computes)
    adds = 0
    for _, _, i, what, k in sorted(operations):
        for c in parts[k]:
            if what == "read":
                seen[i][c] = x[c]
            elif what == "begin":
                saw[i][c] = (x[c], set(holds[c]))
            elif what == "end":
                value, inside = (x[c], holds[c]) if atomic else saw[i][c]
                x[c] = value + -eta * g[i][c]
                holds[c] = inside | {(i, count[i])}
                adds += 1
        if what == "compute":
            g[i] = gradient(seen[i], i, count[i])
            count[i] += 1
    return x, adds, adds - sum(len(h) for h in holds)
