"""One naive reference a server-side method, in numpy, told only how long each gradient takes.

Each class is its paper's formula over plain lists: every version of the parameters is kept, so that nothing can alias
anything. `play` is the clock: a worker that is released at time t finishes its k-th gradient at t + durations[w][k].
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray


class Asgd:
    """x <- x - eta g, whatever the staleness."""

    def __init__(self, x0: Array, workers: int, lr: float) -> None:
        self.lr, self.W = lr, workers
        self.versions = [x0]
        self.sent = [(x0, 0)] * workers  # what each worker was last sent, and its version
        self.applied: list[tuple[int, int]] = []  # (worker, staleness)
        self.refused: list[tuple[int, int]] = []
        self.setup()

    def setup(self) -> None: ...

    @property
    def x(self) -> Array:
        return self.versions[-1]

    @property
    def t(self) -> int:
        return len(self.versions) - 1

    def point(self, w: int) -> Array:
        """Where worker w takes its next gradient."""
        return self.sent[w][0]

    def evaluated(self) -> Array:
        return self.x

    def view(self) -> Array:
        return self.x

    def send(self, w: int) -> list[int]:
        self.sent[w] = (self.view(), self.t)
        return [w]

    def tau(self, w: int) -> int:
        return self.t - self.sent[w][1]

    def apply(self, w: int, direction: Array, scale: float = 1.0) -> None:
        self.applied.append((w, self.tau(w)))
        self.versions.append(self.x - self.lr * scale * direction)

    def finish(self, w: int, g: Array) -> list[int]:
        """A gradient arrives; says who begins another one now."""
        self.apply(w, g)
        return self.send(w)


class DelayCompensated(Asgd):
    lam = 2.0

    def finish(self, w: int, g: Array) -> list[int]:
        self.apply(w, g + self.lam * g * g * (self.x - self.sent[w][0]))
        return self.send(w)


class DelayCompensatedAdaptive(Asgd):
    lam0, m = 2.0, 0.95

    def setup(self) -> None:
        self.mean_square = [np.zeros_like(self.x) for _ in range(self.W)]

    def finish(self, w: int, g: Array) -> list[int]:
        self.mean_square[w] = self.m * self.mean_square[w] + (1 - self.m) * g**2
        lam = self.lam0 / np.sqrt(self.mean_square[w] + 1e-7)
        self.apply(w, g + lam * g * g * (self.x - self.sent[w][0]))
        return self.send(w)


class ServerMomentum(Asgd):
    mu, nesterov = 0.9, False

    def setup(self) -> None:
        self.v = np.zeros_like(self.x)

    def finish(self, w: int, g: Array) -> list[int]:
        self.v = self.mu * self.v + g
        self.apply(w, g + self.mu * self.v if self.nesterov else self.v)
        return self.send(w)


class ServerNesterov(ServerMomentum):
    nesterov = True


class PerWorkerMomentum(Asgd):
    mu, nesterov = 0.9, False

    def setup(self) -> None:
        self.v = [np.zeros_like(self.x) for _ in range(self.W)]

    def finish(self, w: int, g: Array) -> list[int]:
        self.v[w] = self.mu * self.v[w] + g
        self.apply(w, g + self.mu * self.v[w] if self.nesterov else self.v[w])
        return self.send(w)


class PerWorkerNesterov(PerWorkerMomentum):
    """As pushes g + mu v to a plain server, this is DANA-Slim."""

    nesterov = True


class DanaZero(Asgd):
    mu = 0.9

    def setup(self) -> None:
        self.v = [np.zeros_like(self.x) for _ in range(self.W)]

    def view(self) -> Array:
        return self.x - self.lr * self.mu * sum(self.v)

    def finish(self, w: int, g: Array) -> list[int]:
        self.v[w] = self.mu * self.v[w] + g
        self.apply(w, self.v[w])
        return self.send(w)


class Sync(Asgd):
    """Waits for all; the mean in worker order."""

    needed = 0  # how many, 0: all

    def setup(self) -> None:
        self.box: dict[int, Array] = {}

    def finish(self, w: int, g: Array) -> list[int]:
        if self.tau(w) > 0:
            self.refused.append((w, self.tau(w)))
            return self.send(w)
        self.box[w] = g
        if len(self.box) < (self.needed or self.W):
            return []
        mean = sum(self.box[i] for i in sorted(self.box)) / len(self.box)
        there = sorted(self.box)
        self.applied += [(i, 0) for i in self.box]
        self.box = {}
        self.versions.append(self.x - self.lr * mean)
        for i in there:
            self.send(i)
        return there


class Backup(Sync):
    """W = N + 1."""

    def setup(self) -> None:
        super().setup()
        self.needed = self.W - 1


class Ssp(Asgd):
    s = 2

    def setup(self) -> None:
        self.clock = [0] * self.W
        self.parked: set[int] = set()
        self.widest = 0

    def finish(self, w: int, g: Array) -> list[int]:
        self.apply(w, g)
        self.clock[w] += 1
        self.widest = max(self.widest, max(self.clock) - min(self.clock))
        self.parked.add(w)
        free = sorted(i for i in self.parked if self.clock[i] - min(self.clock) <= self.s)
        self.parked -= set(free)
        for i in free:
            self.send(i)
        return free


class StalenessAware(Asgd):
    def finish(self, w: int, g: Array) -> list[int]:
        tau = self.tau(w)
        self.apply(w, g, 1 / tau if tau > 0 else 1.0)
        return self.send(w)


class Softsync(Asgd):
    """c = floor(W / n) gradients a step, each at eta / tau, n = 2."""

    def setup(self) -> None:
        self.c = self.W // 2
        self.box: list[tuple[int, Array, int]] = []

    def finish(self, w: int, g: Array) -> list[int]:
        self.box.append((w, g, self.sent[w][1]))
        if len(self.box) == self.c:
            step = np.zeros_like(self.x)
            for i, each, read in self.box:
                tau = self.t - read
                step = step + (1 / tau if tau > 0 else 1.0) * each / self.c
                self.applied.append((i, tau))
            self.box = []
            self.versions.append(self.x - self.lr * step)
        return self.send(w)


class Mishchenko(Asgd):
    def finish(self, w: int, g: Array) -> list[int]:
        self.apply(w, g, self.W / max(self.W, self.tau(w) + 1))
        return self.send(w)


class Koloskova(Asgd):
    """eta if tau <= W, else min(eta, 1 / (4 L tau))."""

    L = 3.0

    def finish(self, w: int, g: Array) -> list[int]:
        tau = self.tau(w)
        eta = self.lr if tau <= self.W else min(self.lr, 1 / (4 * self.L * tau))
        self.apply(w, g, eta / self.lr)
        return self.send(w)


class KoloskovaDrops(Asgd):
    def finish(self, w: int, g: Array) -> list[int]:
        if self.tau(w) <= self.W:
            self.apply(w, g)
        else:
            self.refused.append((w, self.tau(w)))
        return self.send(w)


class GapAware(Asgd):
    """g / (1 + |x - x_read| / C), C = eta (sqrt(EMA(v^2) / (1 - Gamma^k)) + eps), v the direction taken so far."""

    gamma, eps, mu = 0.999, 1e-8, 0.0

    def setup(self) -> None:
        self.ema, self.k, self.v = np.zeros_like(self.x), 0, np.zeros_like(self.x)

    def finish(self, w: int, g: Array) -> list[int]:
        if self.k:
            C = self.lr * (np.sqrt(self.ema / (1 - self.gamma**self.k)) + self.eps)
            g = g / (1 + np.abs(self.x - self.sent[w][0]) / C)
        self.v = self.mu * self.v + g
        self.ema = self.gamma * self.ema + (1 - self.gamma) * self.v**2
        self.k += 1
        self.apply(w, self.v)
        return self.send(w)


class GapAwareMomentum(GapAware):
    mu = 0.9


class Ringmaster(Asgd):
    R = 3

    def finish(self, w: int, g: Array) -> list[int]:
        if self.tau(w) < self.R:
            self.apply(w, g)
        else:
            self.refused.append((w, self.tau(w)))
        return self.send(w)


class RingmasterStops(Ringmaster):
    """Says whose gradient to stop: everybody who has become too old."""

    R = 5

    def stop(self) -> list[int]:
        return [i for i in range(self.W) if self.tau(i) >= self.R]


class Rennala(Asgd):
    """Batch S at the current x; S = W."""

    def setup(self) -> None:
        self.box: list[tuple[int, Array]] = []

    def finish(self, w: int, g: Array) -> list[int]:
        if self.tau(w) > 0:
            self.refused.append((w, self.tau(w)))
            return self.send(w)
        self.box.append((w, g))
        if len(self.box) == self.W:
            self.applied += [(i, 0) for i, _ in self.box]
            mean = sum(each for _, each in self.box) / self.W
            self.box = []
            self.versions.append(self.x - self.lr * mean)
        return self.send(w)


class Ringleader(Asgd):
    """Two tables of (G_i, b_i); n updates a round, one for each worker, by (1/n) sum_i G_i / b_i."""

    def setup(self) -> None:
        self.now: dict[int, list[Array]] = {i: [] for i in range(self.W)}
        self.next: dict[int, list[Array]] = {i: [] for i in range(self.W)}
        self.had: set[int] = set()

    def finish(self, w: int, g: Array) -> list[int]:
        self.applied.append((w, self.tau(w)))
        if w in self.had:
            self.next[w].append(g)
        else:
            self.now[w].append(g)
            if all(self.now.values()):
                means = [np.mean(self.now[i], axis=0) for i in range(self.W)]
                self.versions.append(self.x - self.lr * np.mean(means, axis=0))
                self.had.add(w)
                if len(self.had) == self.W:
                    self.now, self.next, self.had = self.next, {i: [] for i in range(self.W)}, set()
        return self.send(w)


class ScheduleFree(Asgd):
    """`versions` are z; x is the mean of z_1 ... z_t; workers get y."""

    beta = 0.9

    def evaluated(self) -> Array:
        return np.mean(self.versions[1:], axis=0) if self.t else self.x

    def view(self) -> Array:
        return (1 - self.beta) * self.x + self.beta * self.evaluated()


class ScheduleFreePlain(ScheduleFree):
    beta = 0.0


class ScheduleFreeDecaying(ScheduleFree):
    """Update t at eta_t = eta / (1 + t / 5); x is the mean of z_1 ... z_t with weights eta_t^2."""

    def apply(self, w: int, direction: Array, scale: float = 1.0) -> None:
        super().apply(w, direction, 1 / (1 + (self.t + 1) / 5))

    def evaluated(self) -> Array:
        if not self.t:
            return self.x
        weights = [(1 + t / 5) ** -2 for t in range(1, self.t + 1)]
        return np.average(self.versions[1:], axis=0, weights=weights)


class TopK(Asgd):
    """p = g + e; the k largest components are sent, the rest is kept."""

    share = 0.5

    def setup(self) -> None:
        self.e = [np.zeros_like(self.x) for _ in range(self.W)]

    def finish(self, w: int, g: Array) -> list[int]:
        p = g + self.e[w]
        q = self.compress(p)
        self.e[w] = p - q
        self.apply(w, q)
        return self.send(w)

    def compress(self, p: Array) -> Array:
        k = max(1, round(self.share * len(p)))
        keep = np.argsort(-np.abs(p))[:k]
        q = np.zeros_like(p)
        q[keep] = p[keep]
        return q


class Sign(TopK):
    def compress(self, p: Array) -> Array:
        return np.abs(p).sum() / len(p) * np.sign(p)


class ClippedByWorker(Asgd):
    bound = 0.5

    def finish(self, w: int, g: Array) -> list[int]:
        return super().finish(w, g * min(1.0, self.bound / float(np.sqrt((g * g).sum()))))


class Downpour(Asgd):
    """Dean et al.: fetch if k mod n_fetch = 0; step; push if k mod n_push = 0. Adagrad on the server."""

    n_push, n_fetch, eta = 2, 3, 0.05

    def setup(self) -> None:
        self.local = [self.x] * self.W
        self.acc: list[list[Array]] = [[] for _ in range(self.W)]
        self.read: list[list[int]] = [[] for _ in range(self.W)]
        self.k = [0] * self.W
        self.K = np.zeros_like(self.x)

    def point(self, w: int) -> Array:
        return self.local[w]

    def finish(self, w: int, g: Array) -> list[int]:
        self.acc[w].append(g)
        self.read[w].append(self.sent[w][1])
        self.local[w] = self.local[w] - self.eta * g
        if self.k[w] % self.n_push == 0:
            self.receive(w, sum(self.acc[w]))
            self.acc[w], self.read[w] = [], []
        self.k[w] += 1
        if self.k[w] % self.n_fetch == 0:
            self.send(w)
            self.local[w] = self.x
        return [w]

    def receive(self, w: int, total: Array) -> None:
        self.applied += [(w, self.t - r) for r in self.read[w]]
        self.K = self.K + total**2
        self.versions.append(self.x - self.lr * total / (np.sqrt(self.K) + 1e-10))


class DownpourDelta(Downpour):
    """The server adds the worker's -eta sum g."""

    n_push, n_fetch = 3, 2

    def receive(self, w: int, total: Array) -> None:
        self.applied += [(w, self.t - r) for r in self.read[w]]
        self.versions.append(self.x + -self.eta * total)


class FedBuff(Asgd):
    E, K, eta_g = 2, 3, 0.8

    def setup(self) -> None:
        self.local = [self.x] * self.W
        self.k = [0] * self.W
        self.buffer: list[tuple[int, Array, int]] = []

    def point(self, w: int) -> Array:
        return self.local[w]

    def finish(self, w: int, g: Array) -> list[int]:
        self.local[w] = self.local[w] - self.lr * g
        self.k[w] += 1
        if self.k[w] % self.E == 0:
            self.receive(w, self.sent[w][0] - self.local[w])
            self.send(w)
            self.local[w] = self.x
        return [w]

    def receive(self, w: int, D: Array) -> None:
        self.buffer.append((w, D, self.sent[w][1]))
        if len(self.buffer) == self.K:
            total = np.zeros_like(self.x)
            for i, each, read in self.buffer:
                tau = self.t - read
                self.applied += [(i, tau)] * self.E
                # The weight is that of the moment of arrival: no update can come between it and this step.
                total = total + each / np.sqrt(1 + tau)
            self.buffer = []
            self.versions.append(self.x - self.eta_g * total / self.K)


class AsyncDiLoCo(FedBuff):
    """Liu et al., Algorithm 3: delayed Nesterov."""

    E, eps, b, c = 2, 0.7, 0.9, 0.0

    def setup(self) -> None:
        super().setup()
        self.count, self.S, self.m, self.N = 0, np.zeros_like(self.x), np.zeros_like(self.x), self.W

    def receive(self, w: int, D: Array) -> None:
        self.applied += [(w, self.tau(w))] * self.E
        self.count += 1
        self.S = self.S + D
        if self.count % self.N:
            step = self.c * self.b * self.m + D / self.N
        else:
            self.m = self.b * self.m + self.S / self.N
            self.S = np.zeros_like(self.x)
            step = (1 - self.c * self.N + self.c) * self.b * self.m + D / self.N
        self.versions.append(self.x - self.eps * step)


class AsyncDiLoCoSpread(AsyncDiLoCo):
    c = 0.2


class Phased(Asgd):
    """A barrier while fewer than `calm` samples (one a gradient) are done, ASGD afterwards."""

    calm = 16

    def setup(self) -> None:
        self.box: dict[int, Array] = {}
        self.done = 0

    def finish(self, w: int, g: Array) -> list[int]:
        if self.done >= self.calm:
            self.done += 1
            self.apply(w, g)
            return self.send(w)
        self.box[w] = g
        if len(self.box) < self.W:
            return []
        mean = sum(self.box[i] for i in sorted(self.box)) / self.W
        self.applied += [(i, 0) for i in self.box]
        self.done += self.W
        self.box = {}
        self.versions.append(self.x - self.lr * mean)
        for i in range(self.W):
            self.send(i)
        return list(range(self.W))


class Introduced(Asgd):
    """Worker i begins when `over` * i / W samples are done."""

    over = 20.0

    def setup(self) -> None:
        self.begun = {0}

    def finish(self, w: int, g: Array) -> list[int]:
        self.apply(w, g)
        begins = self.send(w)
        for i in range(self.W):
            if i not in self.begun and self.t >= self.over * i / self.W:
                self.begun.add(i)
                begins = begins + self.send(i)
        return begins


def play(
    method: Asgd,
    durations: Sequence[Sequence[float]],
    gradient: Callable[[Array, int, int], Array],
    updates: int,
) -> list[Array]:
    """Runs the clock; the evaluated parameters after each of the first `updates` updates."""
    heap: list[tuple[float, int, int]] = []
    drawn = [0] * method.W

    def begin(w: int, now: float) -> None:
        k, drawn[w] = drawn[w], drawn[w] + 1
        if k < len(durations[w]):
            heapq.heappush(heap, (now + durations[w][k], w, k))

    present = getattr(method, "begun", range(method.W))
    for w in sorted(present):
        begin(w, 0.0)
    evaluated: list[Array] = []
    while heap and len(evaluated) < updates:
        now, w, k = heapq.heappop(heap)
        before = method.t
        released = method.finish(w, gradient(method.point(w), w, k))
        if method.t > before:
            evaluated.append(method.evaluated())
        for i in released:
            begin(i, now)
        stop: Any = getattr(method, "stop", None)
        for i in stop() if stop else ():
            heap[:] = [e for e in heap if e[1] != i]
            heapq.heapify(heap)
            method.send(i)
            begin(i, now)
    return evaluated
