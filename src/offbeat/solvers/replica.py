"""What methods share whose workers have parameters and an optimizer of their own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from offbeat.core.effects import Applied, Gradient, Stepped
from offbeat.core.reduction import weighted_mean
from offbeat.core.solver import Shown, Solver, World
from offbeat.optim.clipping import clipped
from offbeat.optim.factories import base_rate
from offbeat.optim.steppers import Factory, refusal
from offbeat.optim.worker_stepper import WorkerStepper, revived


@dataclass(slots=True)
class Replica:
    """A worker with parameters x and an optimizer of its own, after k steps."""

    rank: int
    x: Any
    """None until it has them."""
    opt: WorkerStepper
    k: int = 0
    work: float = 0
    """The work clock at its last step."""


R = TypeVar("R", bound=Replica)


@dataclass(slots=True)
class NoServer:
    """The server's state where there is no server: the initial parameters."""

    x: Any


class StepsOnWorkers(Solver, Generic[R]):
    """Workers step by themselves, with any torch optimizer; a subclass says how they come together.

    Typed by the state of a worker: `StepsOnWorkers[Replica]` for a method that keeps nothing of its own there. One
    that does names its record in `replica`, and in `records`.

    Args:
        opt: makes the optimizer of each worker.

    An attribute, and `solver.clip` reaches it from outside:

    Args:
        clip: bound of a gradient's norm before its step. Default: none.
    """

    records: ClassVar[tuple[type, ...]] = (Replica, NoServer)
    replica: ClassVar[type[Replica]] = Replica
    """The class of a worker's state; its fields beyond those of `Replica` have defaults."""
    shows_workers: ClassVar[bool] = True
    clip: float | None = None

    def __init__(self, opt: Factory) -> None:
        self.opt = opt
        self.eta = base_rate(opt)

    def why_not(self, world: World) -> str | None:
        return super().why_not(world) or refusal(self.opt, world.layout, self.multipliers)

    def init_server(self, x0: Any, world: World) -> Any:
        return NoServer(x0)

    def init_worker(self, rank: int, x0: Any, world: World) -> R:
        return cast(R, self.replica(rank, x0, self._worker_optimizer(world)))

    def revive(self, w: R, world: World) -> R:
        w.opt = revived(w.opt, self._worker_optimizer(world))
        return w

    def _worker_optimizer(self, world: World) -> WorkerStepper:
        return WorkerStepper(self.opt, world.layout, self.multipliers)

    def moved(self, w: R, x: Any, direction: Any) -> Any:
        """x <- opt(x, direction)."""
        return w.opt.step_from(x, direction, self.rate(w.work), w.work)

    def step(self, w: R, x: Any, g: Gradient) -> Iterator[Applied | Stepped]:
        """x_i <- opt(x, g): one row of the trace and one update. The last act of a round."""
        w.work = g.work + g.samples
        w.x = self.moved(w, x, clipped(g.value, self.clip))
        w.k += 1
        yield Applied(w.rank, g)
        yield Stepped()

    def shown(self, w: R) -> Shown | None:
        return None if w.x is None else Shown(w.x)

    def parameters(self, s: Any, workers: Mapping[int, Shown]) -> Any:
        """The mean of the workers' parameters, in worker order."""
        xs = [workers[i].x for i in sorted(workers)]
        return weighted_mean(xs, [1.0] * len(xs)) if xs else s.x

    def lr(self, s: Any, work: float) -> float:
        return self.eta * self.rate(work)
