"""ASGD that measures staleness by how far the parameters have moved."""

from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.optim.steppers import Factory
from offbeat.solvers.options import number
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class GapServer(Server):
    """A server that knows how far its steps usually go."""

    ema: Any = None
    """The moving average of v^2; None before the first step."""
    k: int = 0
    """How many steps are in it."""


class GapAware(ParameterServer[GapServer, Worker]):
    """g <- g / (1 + |x - x_read| / C), elementwise, C = eta (sqrt(EMA(v^2) / (1 - Gamma^k)) + eps).

    v is the last step's direction (momentum included); the gap is measured in units of the distance that one step
    usually covers. Barkai, Hakimi and Schuster 2020, "Gap-aware mitigation of gradient staleness", for SGD with or
    without momentum; under other optimizers v is the gradient.

    Args:
        opt: makes the server's optimizer.
        gamma: Gamma, the decay of the moving average. Default: 0.999.
        eps: eps, which keeps C above 0. Default: 1e-8.
    """

    line = "ASGD that shrinks each component by how far the parameters have moved"
    paper = "-"
    needs_answer = "its gap is measured from what a worker was sent last, and the gradient would be of what came before"
    cite = ("barkai2020",)
    records: ClassVar[tuple[type, ...]] = (GapServer, Worker, Held)
    server_state = GapServer
    elementwise = True
    at_once = True

    def __init__(self, opt: Factory, *, gamma: float = 0.999, eps: float = 1e-8) -> None:
        self.gamma, self.eps = number("gamma", gamma, 0.0, 1.0, open_end=True), number("eps", eps)
        super().__init__(opt, correct=self._shrink)

    def _shrink(self, s: GapServer, arrival: Arrival) -> tuple[Any, float]:
        g, eta = arrival.gradient.value, s.opt.lr * self.rate(s.samples)
        if s.ema is not None:
            C = eta * ((s.ema / (1 - self.gamma**s.k)) ** 0.5 + self.eps)
            g = g / (1 + (s.x - s.sent[arrival.worker].x).abs() / C)
        v = s.opt.direction(g)
        s.ema = (1 - self.gamma) * v * v if s.ema is None else self.gamma * s.ema + (1 - self.gamma) * v * v
        s.k += 1
        return g, 1.0
