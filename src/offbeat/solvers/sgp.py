"""SGP: stochastic gradient push. Workers give half of what they have to one peer at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core.effects import Applied, Grad, Received, Send, Stepped, Wait
from offbeat.core.reduction import weighted_mean
from offbeat.core.solver import Round, Shown, World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import whole
from offbeat.solvers.replica import NoServer, Replica, StepsOnWorkers


@dataclass(slots=True)
class Share:
    """What a worker gives away in iteration k: a part of its x and of its weight."""

    value: Any
    weight: float
    k: int


@dataclass(slots=True)
class Pusher(Replica):
    """A worker of push-sum: its parameters are x / weight."""

    W: int = 1
    """How many workers there are."""
    weight: float = 1.0
    """w_i."""
    due: list[int] = field(default_factory=list)
    """The iterations whose share has not been taken in yet, oldest first."""
    inbox: dict[int, Share] = field(default_factory=dict)
    """Shares that have come, by iteration."""

    def take_in(self) -> None:
        """Adds what has come, of iterations that this worker has done itself."""
        for k in [k for k in self.due if k in self.inbox]:
            share = self.inbox.pop(k)
            self.due.remove(k)
            self.x, self.weight = self.x + share.value, self.weight + share.weight

    def receiver(self, k: int) -> int:
        """Who gets its share of iteration k."""
        return (self.rank + hop(k, self.W)) % self.W

    def sender(self, k: int) -> int:
        """Whose share of iteration k comes here."""
        return (self.rank - hop(k, self.W)) % self.W


class SGP(StepsOnWorkers[Pusher]):
    """x_i <- opt(x_i, g(z_i)); x <- P x; w <- P w; z_i = x_i / w_i, with w = 1 at the start (push-sum).

    P is the one-peer exponential graph: in iteration k worker i keeps one half of its x_i and w_i and sends the other
    to worker i + 2^(k mod log2 W). It then waits for the half that comes to it. Optimizers work on x_i. Assran et al.
    2019, "Stochastic gradient push for distributed deep learning" [reconstructed]. The mean of the z_i is evaluated;
    there is no staleness.

    Args:
        opt: makes the optimizer of each worker.
        overlap: s, how many iterations late a half may be before a worker waits for it. Default: 0.
    """

    line = "push-sum gossip over an exponential graph"
    paper = "-"
    cite = ("assran2019sgp",)
    vectors = 4
    asks = frozenset({Grad, Send, Wait})
    records: ClassVar[tuple[type, ...]] = (Pusher, NoServer, Share)
    replica = Pusher
    takes_in = False

    def __init__(self, opt: Factory, *, overlap: int = 0) -> None:
        super().__init__(opt)
        self.overlap = whole("overlap", overlap, 0)

    def init_worker(self, rank: int, x0: Any, world: World) -> Pusher:
        w = super().init_worker(rank, x0, world)
        w.W = world.workers
        return w

    def round(self, w: Pusher) -> Round:
        w.take_in()
        while w.due and w.due[0] < w.k - self.overlap:
            if not (yield Wait(w.sender(w.due[0]))):
                w.due.pop(0)  # its sender is gone
            w.take_in()
        g, k = (yield Grad(w.x / w.weight)), w.k
        yield from self.step(w, w.x, g)
        if w.W > 1:
            w.due.append(k)
            half = Share(w.x / 2, w.weight / 2, k)
            if (yield Send((w.receiver(k),), half)):  # nobody there: it keeps what it has
                w.x, w.weight = half.value, half.weight

    def on_message(self, w: Pusher, sender: int, message: Share) -> Iterator[Applied | Received | Stepped]:
        w.inbox[message.k] = message
        yield from ()

    def shown(self, w: Pusher) -> Shown:
        return Shown(w.x, w.weight)

    def parameters(self, s: Any, workers: Mapping[int, Shown]) -> Any:
        z = [workers[i].x / workers[i].weight for i in sorted(workers)]
        return weighted_mean(z, [1.0] * len(z)) if z else s.x


def hop(k: int, W: int) -> int:
    """How far iteration k's message goes: 1, 2, 4, ... below W, again and again."""
    return int(2 ** (k % (W - 1).bit_length()))
