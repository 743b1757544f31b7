"""Schedule-free averaging, asynchronously."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import View
from offbeat.core.solver import Shown, World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import number
from offbeat.solvers.parameter_server import Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class AveragingServer(Server):
    """A server whose `x` is the paper's z, with the mean of its past."""

    mean: Any = None
    """The paper's x."""
    mean_version: int = 0
    """The version of z that it has come to."""
    weights: float = 0.0
    """The sum of eta^2 so far."""


class ScheduleFree(ParameterServer[AveragingServer, Worker]):
    """z <- opt(z, g(y)); x <- (1 - c) x + c z; workers are sent y = (1 - beta) z + beta x. Evaluated at x.

    c = eta_t^2 / sum_{s <= t} eta_s^2, eta with its schedule: 1/t, the plain mean of all z, where eta is constant.
    Defazio et al. 2024, "The road less scheduled"; its composition with a parameter server is ours. beta = 0: z is
    plain ASGD and x its running mean.

    Args:
        opt: makes the server's optimizer, which steps z.
        beta: beta, how much of the mean is in what workers are sent. Default: 0.9.
    """

    line = "ASGD at an interpolation of the iterate and its running mean"
    paper = "-"
    needs_answer = None
    cite = ("defazio2024",)
    records: ClassVar[tuple[type, ...]] = (AveragingServer, Worker, Held)
    server_state = AveragingServer
    at_once = True

    def __init__(self, opt: Factory, *, beta: float = 0.9) -> None:
        self.beta = number("beta", beta, 0.0, 1.0)
        super().__init__(opt, view=self._view)

    def init_server(self, x0: Any, world: World) -> AveragingServer:
        s = super().init_server(x0, world)
        s.mean = x0
        return s

    def _view(self, s: AveragingServer, worker: int) -> View:
        self._average(s)
        return View(s.x if self.beta == 0 else (1 - self.beta) * s.x + self.beta * s.mean, s.version)

    def _average(self, s: AveragingServer) -> None:
        """Brings the mean up to the version: one step behind at most, because every step ends with a reply."""
        if s.mean_version < s.version:
            eta = s.opt.lr * self.rate(s.samples)
            s.weights += eta**2
            c = eta**2 / s.weights
            s.mean, s.mean_version = (1 - c) * s.mean + c * s.x, s.version

    def parameters(self, s: AveragingServer, workers: Mapping[int, Shown]) -> Any:
        return s.mean
