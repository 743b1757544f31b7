"""AD-PSGD: asynchronous gossip. Workers average with one neighbour at a time."""

from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import Grad, Mix
from offbeat.core.seeds import key64
from offbeat.core.solver import Round, World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import choice
from offbeat.solvers.replica import NoServer, Replica, StepsOnWorkers


@dataclass(slots=True)
class Gossiper(Replica):
    """A worker that knows its neighbours."""

    neighbours: tuple[int, ...] = ()
    seed: int = 0
    """From which its choices among them are drawn."""


class ADPSGD(StepsOnWorkers[Gossiper]):
    """g = g(x_i); x_i, x_j <- (x_i + x_j) / 2 with a random neighbour j, atomically; x_i <- opt(x_i, g).

    Lian et al. 2018, "Asynchronous decentralized parallel stochastic gradient descent" [reconstructed]. The mean of
    the workers is evaluated, which averaging never changes. Without versions there is no staleness: a neighbour's
    average may move x_i while g is being computed.

    Args:
        opt: makes the optimizer of each worker.
        graph: who is whose neighbour: "complete", "ring", or "bipartite", where even workers ask and odd ones only
            answer, which is how the paper rules out deadlock. Default: "complete".
    """

    line = "asynchronous gossip: average with a random neighbour, then step"
    paper = "-"
    cite = ("lian2018adpsgd",)
    vectors = 3
    bytes_a_peer = 50
    asks = frozenset({Grad, Mix})
    records: ClassVar[tuple[type, ...]] = (Gossiper, NoServer)
    replica = Gossiper
    takes_in = False

    def __init__(self, opt: Factory, *, graph: str = "complete") -> None:
        super().__init__(opt)
        self.graph = choice("graph", graph, ("complete", "ring", "bipartite"))

    def init_worker(self, rank: int, x0: Any, world: World) -> Gossiper:
        w = super().init_worker(rank, x0, world)
        w.neighbours, w.seed = self._neighbours(rank, world.workers), world.seed
        return w

    def _neighbours(self, i: int, W: int) -> tuple[int, ...]:
        if self.graph == "ring":
            return tuple(sorted({(i - 1) % W, (i + 1) % W} - {i}))
        if self.graph == "bipartite":
            return tuple(range(1, W, 2)) if i % 2 == 0 else ()
        return tuple(j for j in range(W) if j != i)

    def round(self, w: Gossiper) -> Round:
        g = yield Grad(w.x)
        if w.neighbours:
            yield Mix(w.neighbours[key64(w.seed, "topology", w.rank, w.k) % len(w.neighbours)])
        yield from self.step(w, w.x, g)
