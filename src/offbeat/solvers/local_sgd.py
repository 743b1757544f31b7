"""Local SGD: many steps alone, then the workers come together."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch

from offbeat.core.effects import AllReduce, Grad, Reduced
from offbeat.core.solver import Round, World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import choice, number, whole
from offbeat.solvers.replica import NoServer, Replica, StepsOnWorkers


@dataclass(slots=True)
class LocalReplica(Replica):
    """A worker that counts its steps between two meetings."""

    alone: int = 0
    """Steps since the last meeting."""
    steps: int = 1
    """Steps from one meeting to the next."""
    post: float = 0.0
    """The moment of the work clock up to which workers meet after every step."""


L = TypeVar("L", bound=LocalReplica)


class LocalSGD(StepsOnWorkers[L]):
    """H steps x_i <- opt(x_i, g_i(x_i)) on every worker, then x_i <- (1/W) sum_j x_j.

    Stich 2019, "Local SGD converges fast and communicates little". The mean of the workers is evaluated. A gradient is
    used where it was computed: no staleness.

    Args:
        opt: makes the optimizer of each worker.
        H: H, the steps between two meetings. Default: 16.
        momentum: what becomes of the optimizers' moments when workers meet: each keeps its own ("local"), all forget
            ("reset"), or they are averaged too ("average"): three different algorithms. Default: "local".
        post: so many epochs of H = 1 come first: post-local SGD (Lin et al. 2020 took H = 16). Default: 0.
    """

    line = "H steps alone, then the parameters are averaged"
    paper = "-"
    vectors = 1
    cite: ClassVar[tuple[str, ...]] = ("stich2019local", "lin2020postlocal")
    asks = frozenset({Grad, AllReduce})
    records: ClassVar[tuple[type, ...]] = (LocalReplica, NoServer)
    replica: ClassVar[type[Replica]] = LocalReplica
    takes_in = False

    def __init__(self, opt: Factory, *, H: int = 16, momentum: str = "local", post: float = 0.0) -> None:
        super().__init__(opt)
        self.H, self.post = whole("H", H), number("post", post)
        self.momentum = choice("momentum", momentum, ("local", "reset", "average"))

    def why_not(self, world: World) -> str | None:
        if self.post and world.samples_per_epoch is None:
            return f"solver.post counts epochs, and this task has none, got {self.post!r}"
        return super().why_not(world)

    def init_worker(self, rank: int, x0: Any, world: World) -> L:
        w = super().init_worker(rank, x0, world)
        w.post = self.post * (world.samples_per_epoch or 0)
        w.steps = self._steps_at(0, w)
        return w

    def _steps_at(self, work: float, w: L) -> int:
        return 1 if work < w.post else self.H

    def round(self, w: L) -> Round:
        if w.alone < w.steps:
            g = yield Grad(w.x)
            w.alone += 1
            yield from self.step(w, w.x, g)
        else:  # a round of its own: what it changes, it changes at its end
            mean = yield from self._meet(w)
            w.x = self.outer(w, mean)
            w.alone, w.steps = 0, self._steps_at(mean.work, w)

    def _meet(self, w: L) -> Generator[AllReduce, Reduced, Reduced]:
        """The mean of everybody's parameters; the optimizer's moments are kept, forgotten or averaged with them."""
        moments = w.opt.moments() if self.momentum == "average" else []
        if not moments:
            mean = yield AllReduce(w.x)
            if self.momentum == "reset":
                w.opt.reset()
            return mean
        n = len(w.x)
        mean = yield AllReduce(torch.cat([w.x, *moments]))
        w.opt.replace_moments(mean.value[n:])
        return Reduced(mean.value[:n].clone(), mean.weight, mean.members, mean.work)

    def outer(self, w: L, mean: Reduced) -> Any:
        """Where everybody goes on from: the mean."""
        return mean.value
