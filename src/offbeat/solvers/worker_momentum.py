"""Asynchronous SGD where each worker pushes its own momentum."""

from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.optim.steppers import Factory
from offbeat.solvers.momentum import Velocity
from offbeat.solvers.parameter_server import Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class MomentumWorker(Worker):
    """A worker with a velocity."""

    v: Any = None


class WorkerMomentum(ParameterServer[Server, MomentumWorker]):
    """The worker sends its own momentum: v <- mu v + g; push v (Nesterov: g + mu v); the server's step is plain.

    Lin et al. 2018, "Deep gradient compression"; wongpanich2020.

    Args:
        opt: makes the server's optimizer, which must be plain SGD.
        momentum: mu. Default: 0.9.
        nesterov: whether what is pushed looks ahead. Default: false.
    """

    line = "ASGD where each worker pushes its own momentum"
    paper = "wongpanich2020"
    needs_answer: str | None = None
    vectors = 4
    cite: ClassVar[tuple[str, ...]] = ("lin2018dgc",)
    records: ClassVar[tuple[type, ...]] = (Server, MomentumWorker, Held)
    worker_state = MomentumWorker
    at_once = True
    name: ClassVar[str] = "worker-momentum"

    def __init__(self, opt: Factory, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        self.velocity = Velocity(opt, self.name, momentum, nesterov)
        super().__init__(opt, push=self._accumulate)

    def _accumulate(self, w: MomentumWorker, g: Any) -> Any:
        w.v, direction = self.velocity.advance(w.v, g)
        return direction
