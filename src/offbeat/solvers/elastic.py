"""What elastic averaging methods share: workers with parameters of their own, tied to a centre by a spring."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from offbeat.core.errors import ConfigError
from offbeat.core.solver import Shown, World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import number, whole
from offbeat.solvers.replica import Replica, StepsOnWorkers


@dataclass(slots=True)
class Centre:
    """The server's state: the centre xc, how often it was moved, and whose turn it is."""

    x: Any
    version: int
    live: list[int]
    """In worker order."""
    turn: int
    waiting: dict[int, tuple[Any, float]] = field(default_factory=dict)
    """Calls that wait for their turn: parameters, and the strength of the spring."""


@dataclass(slots=True)
class TiedReplica(Replica):
    """A worker on a spring."""

    alpha: float = 0.0
    """Its strength, where it does not follow the learning rate."""


T = TypeVar("T", bound=TiedReplica)


class Elastic(StepsOnWorkers[T]):
    """A spring of strength alpha, or alpha = eta rho, which moves with the schedule of eta. The centre is evaluated.

    Args:
        opt: makes the optimizer of each worker; its learning rate is eta.
        alpha: alpha. None, where rho is None too: 0.9 / W, as in Zhang et al. 2015.
        rho: rho; give one of the two.
        period: tau, the steps between two exchanges with the centre.
    """

    records: ClassVar[tuple[type, ...]] = (TiedReplica, Centre)
    replica: ClassVar[type[Replica]] = TiedReplica
    shows_workers: ClassVar[bool] = False

    def __init__(self, opt: Factory, alpha: float | None, rho: float | None, period: int) -> None:
        super().__init__(opt)
        if alpha is not None and rho is not None:
            raise ConfigError(
                f"give solver.alpha or solver.rho, not both: alpha = eta rho, got alpha={alpha!r} and rho={rho!r}"
            )
        self.alpha = None if alpha is None else number("alpha", alpha, 0.0, 1.0)
        self.rho = None if rho is None else number("rho", rho)
        self.period = whole("period", period)

    def init_server(self, x0: Any, world: World) -> Centre:
        return Centre(x0, 0, sorted(world.present), min(world.present))

    def init_worker(self, rank: int, x0: Any, world: World) -> T:
        w = super().init_worker(rank, x0, world)
        w.alpha = self.alpha if self.alpha is not None else 0.9 / self.springs(world)
        return w

    def springs(self, world: World) -> int:
        """How many there are."""
        return world.workers

    def strength(self, w: T) -> float:
        """alpha at this moment."""
        return w.alpha if self.rho is None else self.eta * self.rate(w.work) * self.rho

    def version(self, s: Centre) -> int:
        return s.version

    def parameters(self, s: Centre, workers: Mapping[int, Shown]) -> Any:
        """The centre."""
        return s.x
