"""Gossip: workers average with one peer at a time. AD-PSGD and SGP."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import Applied, Grad, Mix, Received, Send, Stepped, Wait
from offbeat.core.reduction import weighted_mean
from offbeat.core.seeds import key64
from offbeat.core.solver import Round, World
from offbeat.solvers.checks import choice, nobody_joins, whole
from offbeat.solvers.local import Local, Nobody, Replica
from offbeat.solvers.optimizers import Factory


class ADPSGD(Local):
    """g = g(x_i); x_i, x_j <- (x_i + x_j) / 2 with a random neighbour j, atomically; x_i <- opt(x_i, g).

    `graph` is "complete", "ring", or "bipartite": then even workers ask and odd ones only answer, which is how the
    paper rules out deadlock. Lian et al. 2018, "Asynchronous decentralized parallel stochastic gradient descent"
    [reconstructed]. The mean of the workers is evaluated, which averaging never changes. Without versions there is no
    staleness: a neighbour's average may move x_i while g is being computed.
    """

    line = "asynchronous gossip: average with a random neighbour, then step"
    paper = "-"
    cite = ("lian2018adpsgd",)
    asks: ClassVar[frozenset[type]] = frozenset({Grad, Mix})

    def __init__(self, opt: Factory, *, graph: str = "complete") -> None:
        super().__init__(opt)
        self.graph = choice("graph", graph, ("complete", "ring", "bipartite"))

    def init_server(self, x0: Any, world: World) -> Any:
        nobody_joins(world, "ad-psgd")
        return super().init_server(x0, world)

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        w = super().init_worker(rank, x0, world)
        w.memory = {"neighbours": self._neighbours(rank, world.workers), "seed": world.seed}
        return w

    def _neighbours(self, i: int, W: int) -> tuple[int, ...]:
        if self.graph == "ring":
            return tuple(sorted({(i - 1) % W, (i + 1) % W} - {i}))
        if self.graph == "bipartite":
            return tuple(range(1, W, 2)) if i % 2 == 0 else ()
        return tuple(j for j in range(W) if j != i)

    def round(self, w: Replica) -> Round:
        g = yield Grad(w.x)
        neighbours = w.memory["neighbours"]
        if neighbours:
            yield Mix(neighbours[key64(w.memory["seed"], "topology", w.rank, w.k) % len(neighbours)])
        yield from self.step(w, w.x, g)


@dataclass(slots=True)
class Share:
    """What a worker gives away in iteration k: a part of its x and of its weight."""

    value: Any
    weight: float
    k: int


class SGP(Local):
    """x_i <- opt(x_i, g(z_i)); x <- P x; w <- P w; z_i = x_i / w_i, with w = 1 at the start (push-sum).

    P is the one-peer exponential graph: in iteration k worker i keeps one half of its x_i and w_i and sends the other
    to worker i + 2^(k mod log2 W). It then waits for the half that comes to it; with `overlap` = s it goes on with
    halves that are up to s iterations late. Optimizers work on x_i. Assran et al. 2019, "Stochastic gradient push for
    distributed deep learning" [reconstructed]. The mean of the z_i is evaluated; there is no staleness.
    """

    line = "push-sum gossip over an exponential graph"
    paper = "-"
    cite = ("assran2019sgp",)
    asks: ClassVar[frozenset[type]] = frozenset({Grad, Send, Wait})
    records: ClassVar[tuple[type, ...]] = (Replica, Nobody, Share)

    def __init__(self, opt: Factory, *, overlap: int = 0) -> None:
        super().__init__(opt)
        self.overlap = whole("overlap", overlap, 0)

    def init_server(self, x0: Any, world: World) -> Any:
        nobody_joins(world, "sgp")
        return super().init_server(x0, world)

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        w = super().init_worker(rank, x0, world)
        w.memory = {"W": world.workers, "weight": 1.0, "inbox": {}, "missing": []}
        return w

    def round(self, w: Replica) -> Round:
        m = w.memory
        self._take_in(w)
        while m["missing"] and m["missing"][0] < w.k - self.overlap:
            if not (yield Wait((w.rank - _hop(m["missing"][0], m["W"])) % m["W"])):
                m["missing"].pop(0)  # its sender is gone
            self._take_in(w)
        g = yield Grad(w.x / m["weight"])
        k = w.k
        yield from self.step(w, w.x, g)
        if m["W"] == 1:
            return
        m["missing"].append(k)
        half, weight = w.x / 2, m["weight"] / 2
        if (yield Send(((w.rank + _hop(k, m["W"])) % m["W"],), Share(half, weight, k))):
            w.x, m["weight"] = half, weight

    def on_message(self, w: Replica, sender: int, message: Share) -> Iterator[Applied | Received | Stepped]:
        w.memory["inbox"][message.k] = message
        yield from ()

    def _take_in(self, w: Replica) -> None:
        """Adds what has come, of iterations that this worker has done itself."""
        m = w.memory
        for k in [k for k in m["missing"] if k in m["inbox"]]:
            share = m["inbox"].pop(k)
            m["missing"].remove(k)
            w.x, m["weight"] = w.x + share.value, m["weight"] + share.weight

    def parameters(self, s: Any, workers: Mapping[int, Replica]) -> Any:
        z = [workers[i].x / workers[i].memory["weight"] for i in sorted(workers)]
        return weighted_mean(z, [1.0] * len(z)) if z else s.x


def _hop(k: int, W: int) -> int:
    """How far iteration k's message goes: 1, 2, 4, ... below W, again and again."""
    return int(2 ** (k % (W - 1).bit_length()))
