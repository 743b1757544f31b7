"""Asynchronous SGD with one momentum buffer on the server."""

from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.optim.steppers import Factory
from offbeat.solvers.momentum import Velocity
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class MomentumServer(Server):
    """A server with one velocity."""

    v: Any = None


class AsyncMomentum(ParameterServer[MomentumServer, Worker]):
    """One buffer on the server: v <- mu v + g; x <- x - eta v. Nesterov: x <- x - eta (g + mu v).

    The "Async MSGD" of wongpanich2020 and the momentum of lamour2023 (heavy-ball in its code, Nesterov in its text).
    On a quadratic of curvature h at constant staleness 1: stable for eta h < 1 - mu.

    Args:
        opt: makes the server's optimizer, which must be plain SGD; its learning rate is eta.
        momentum: mu. Default: 0.9.
        nesterov: whether the step looks ahead. Default: false.
    """

    line = "ASGD with one momentum buffer on the server"
    paper = "wongpanich2020, lamour2023"
    needs_answer = None
    cite = ("mitliagkas2016", "sutskever2013")
    records: ClassVar[tuple[type, ...]] = (MomentumServer, Worker, Held)
    server_state = MomentumServer
    at_once = True

    def __init__(self, opt: Factory, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        self.velocity = Velocity(opt, "async-momentum", momentum, nesterov)
        super().__init__(opt, correct=self._accumulate)

    def _accumulate(self, s: MomentumServer, arrival: Arrival) -> tuple[Any, float]:
        s.v, direction = self.velocity.advance(s.v, arrival.gradient.value)
        return direction, 1.0
