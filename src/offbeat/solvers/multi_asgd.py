"""Asynchronous SGD with a momentum buffer for each worker, on the server."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.optim.steppers import Factory
from offbeat.solvers.momentum import Velocity
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class VelocitiesServer(Server):
    """A server with a velocity for each worker."""

    v: dict[int, Any] = field(default_factory=dict)


class MultiASGD(ParameterServer[VelocitiesServer, Worker]):
    """One buffer a worker, on the server: v_i <- mu v_i + g; x <- x - eta v_i. Nesterov: x <- x - eta (g + mu v_i).

    Hakimi et al. 2019, "Taming momentum in a distributed asynchronous environment"; wongpanich2020.

    Args:
        opt: makes the server's optimizer, which must be plain SGD; its learning rate is eta.
        momentum: mu. Default: 0.9.
        nesterov: whether the step looks ahead. Default: false.
    """

    line = "ASGD with a momentum buffer for each worker, on the server"
    paper = "wongpanich2020"
    needs_answer = None
    cite = ("hakimi2019dana",)
    vectors = 3
    records: ClassVar[tuple[type, ...]] = (VelocitiesServer, Worker, Held)
    server_state = VelocitiesServer
    at_once = True

    def __init__(self, opt: Factory, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        self.velocity = Velocity(opt, "multi-asgd", momentum, nesterov)
        super().__init__(opt, correct=self._accumulate)

    def _accumulate(self, s: VelocitiesServer, arrival: Arrival) -> tuple[Any, float]:
        i = arrival.worker
        s.v[i], direction = self.velocity.advance(s.v.get(i), arrival.gradient.value)
        return direction, 1.0
