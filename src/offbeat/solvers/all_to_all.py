"""All-to-all: every worker has a replica, and sends its updates to all others."""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import Applied, Batch, Grad, Gradient, Received, Send, Stepped
from offbeat.core.solver import Round, Shown, Solver, World
from offbeat.optim.clipping import clipped
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import additive
from offbeat.solvers.replica import NoServer

Clock = tuple[int, ...]
"""How many updates of each worker were applied. Updates of one worker arrive in order, so this is a set of updates."""


@dataclass(slots=True)
class PeerModel:
    """A worker: its replica, and which updates are in it."""

    rank: int
    x: Any
    clock: Clock


@dataclass(slots=True)
class Update:
    """-eta g, the updates its sender had applied when it computed it, and the gradient for the books."""

    value: Any
    basis: Clock
    gradient: Gradient


class AllToAll(Solver):
    """g = g(x_i); x_i <- x_i - eta g; send -eta g to all others; they do x_j <- x_j - eta g on arrival.

    Updates commute, so that all replicas agree once everything has arrived (up to rounding: each adds in its own
    order). Set staleness of g, computed by model B and applied by model A: |G_B(when it computed) symmetric difference
    G_A(when it applies)|, where G are sets of updates, here vector clocks. One row of the trace for each application:
    "applied" at its own model, "received" at the others. Per-pair latency is `cluster.peers`; `cluster.feeder` is the
    mini-batch generator that feeds the models. Tosi et al. 2022. The first worker's replica is evaluated.

    Args:
        opt: plain SGD, because only additions commute; its learning rate is eta.

    An attribute, and `solver.clip` reaches it from outside:

    Args:
        clip: bound of a gradient's norm before it is added. Default: none.
    """

    line = "every worker sends its updates to all others; set staleness"
    paper = "tosi2022"
    cite = ("tosi2022",)
    vectors = 4
    bytes_a_peer = 30
    records: ClassVar[tuple[type, ...]] = (PeerModel, Update, NoServer)
    asks = frozenset({Batch, Grad, Send})
    shows_workers: ClassVar[bool] = True
    takes_in = False
    clip: float | None = None

    def __init__(self, opt: Factory) -> None:
        self.eta = additive(
            opt, "all-to-all", "updates arrive in a different order everywhere, and replicas agree only if they commute"
        )

    def init_server(self, x0: Any, world: World) -> NoServer:
        return NoServer(x0)

    def init_worker(self, rank: int, x0: Any, world: World) -> PeerModel:
        return PeerModel(rank, x0, (0,) * world.workers)

    def round(self, w: PeerModel) -> Round:
        yield Batch()  # until it is there, the model takes in what the others send
        basis = w.clock
        g = yield Grad(w.x)
        eta = self.eta * self.rate(g.work + g.samples)
        d = -eta * clipped(g.value, self.clip)
        yield Applied(w.rank, g, staleness=distance(basis, w.clock))
        w.x, w.clock = w.x + d, counted(w.clock, w.rank)
        yield Stepped()
        yield Send(tuple(j for j in range(len(w.clock)) if j != w.rank), Update(d, basis, _for_the_books(g)))

    def on_message(self, w: PeerModel, sender: int, message: Update) -> Iterator[Applied | Received | Stepped]:
        yield Received(w.rank, message.gradient, distance(message.basis, w.clock))
        w.x, w.clock = w.x + message.value, counted(w.clock, sender)

    def shown(self, w: PeerModel) -> Shown:
        return Shown(w.x)

    def parameters(self, s: NoServer, workers: Mapping[int, Shown]) -> Any:
        return workers[min(workers)].x if workers else s.x

    def lr(self, s: NoServer, work: float) -> float:
        return self.eta * self.rate(work)


def distance(a: Clock, b: Clock) -> int:
    """The size of the symmetric difference of two sets of updates."""
    return sum(abs(m - n) for m, n in zip(a, b, strict=True))


def counted(clock: Clock, sender: int) -> Clock:
    """With one more update of this sender."""
    return (*clock[:sender], clock[sender] + 1, *clock[sender + 1 :])


def _for_the_books(g: Gradient) -> Gradient:
    """The gradient without its vectors."""
    told = copy(g)
    told.value = told.at = None
    return told
