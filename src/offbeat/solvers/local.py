"""What methods share whose workers have parameters and an optimizer of their own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core.codec import Live
from offbeat.core.effects import Applied, Gradient, Stepped
from offbeat.core.reduction import weighted_mean
from offbeat.core.solver import Solver, World
from offbeat.solvers.checks import base_rate
from offbeat.solvers.optimizers import Factory, Fresh
from offbeat.solvers.parameter_server import clipped


@dataclass(slots=True)
class Replica:
    """A worker with parameters x and an optimizer of its own, after k steps."""

    rank: int
    x: Any
    """None until it has them."""
    opt: Any
    k: int = 0
    work: float = 0
    """The work clock at its last step."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the method keeps for itself."""


@dataclass(slots=True)
class Nobody:
    """The server's state where there is no server: the initial parameters."""

    x: Any


class Local(Solver):
    """Steps are taken on the worker, by any torch optimizer; a subclass says how workers come together.

    `clip` bounds the norm of a gradient before its step.
    """

    records: ClassVar[tuple[type, ...]] = (Replica, Nobody)
    clip: float | None = None

    def __init__(self, opt: Factory) -> None:
        self.opt = opt
        self.eta = base_rate(opt)

    def init_server(self, x0: Any, world: World) -> Any:
        return Nobody(x0)

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        return Replica(rank, x0, Fresh(self.opt, world.layout, self.multipliers))

    def revive(self, w: Replica, world: World) -> Replica:
        if isinstance(w.opt, Live):
            saved, w.opt = w.opt.saved, Fresh(self.opt, world.layout, self.multipliers)
            w.opt.load(saved)
        return w

    def moved(self, w: Replica, x: Any, direction: Any) -> Any:
        """x <- opt(x, direction)."""
        return w.opt.step_from(x, direction, self.rate(w.work), w.work)

    def step(self, w: Replica, x: Any, g: Gradient) -> Iterator[Applied | Stepped]:
        """x_i <- opt(x, g): one row of the trace and one update. The last act of a round."""
        w.work = g.work + g.samples
        w.x = self.moved(w, x, g.value if self.clip is None else clipped(g.value, self.clip))
        w.k += 1
        yield Applied(w.rank, g)
        yield Stepped()

    def parameters(self, s: Any, workers: Mapping[int, Replica]) -> Any:
        """The mean of the workers' parameters, in worker order."""
        xs = [workers[i].x for i in sorted(workers)]
        return weighted_mean(xs, [1.0] * len(xs)) if xs else s.x

    def lr(self, s: Any, work: float) -> float:
        return self.eta * self.rate(work)
