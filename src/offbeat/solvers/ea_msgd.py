"""EAMSGD: EASGD with Nesterov momentum on the workers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.optim.steppers import Factory
from offbeat.solvers.easgd import EASGD
from offbeat.solvers.elastic import Centre, TiedReplica
from offbeat.solvers.options import additive, number
from offbeat.solvers.replica import Replica


@dataclass(slots=True)
class TiedMomentumReplica(TiedReplica):
    """A worker on a spring, with a velocity."""

    v: Any = None
    """None before the first step."""


class EAMSGD(EASGD[TiedMomentumReplica]):
    """v_j <- delta v_j - eta g(x_j + delta v_j); x_j <- x_j - d + v_j, with d as in EASGD: the spring is not in v_j.

    Zhang, Choromanska and LeCun 2015, "Deep learning with elastic averaging SGD" [reconstructed]; wongpanich2020.

    Args:
        opt: makes the optimizer of each worker, which must be plain SGD; its learning rate is eta.
        delta: delta, the momentum. Default: 0.99, the paper's, which took period 1.
        alpha: alpha, the strength of the spring. Default: 0.9 / W, unless there is a rho.
        rho: rho, in place of alpha: alpha = eta rho, which moves with the schedule of eta. Default: none.
        period: tau, the steps between two exchanges with the centre. Default: 1.
        order: "round-robin" or "arrival", as in EASGD. Default: "round-robin".
    """

    line = "EASGD with Nesterov momentum on the workers"
    vectors = 4
    records: ClassVar[tuple[type, ...]] = (TiedMomentumReplica, Centre)
    replica: ClassVar[type[Replica]] = TiedMomentumReplica

    def __init__(
        self,
        opt: Factory,
        *,
        delta: float = 0.99,
        alpha: float | None = None,
        rho: float | None = None,
        period: int = 1,
        order: str = "round-robin",
    ) -> None:
        additive(opt, "ea-msgd", "its momentum is solver.delta, on every worker")
        super().__init__(opt, alpha=alpha, rho=rho, period=period, order=order)
        self.delta = number("delta", delta, 0.0, 1.0, open_end=True)

    def point(self, w: TiedMomentumReplica) -> Any:
        return w.x if w.v is None else w.x + self.delta * w.v

    def moved(self, w: TiedMomentumReplica, x: Any, direction: Any) -> Any:
        step = -self.eta * self.rate(w.work) * direction
        w.v = step if w.v is None else self.delta * w.v + step
        return x + w.v
