"""Schedule-free averaging, asynchronously."""

from collections.abc import Mapping
from typing import Any

from offbeat.core.effects import View
from offbeat.core.solver import World
from offbeat.solvers.checks import number
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import ParameterServer, Server


class ScheduleFree(ParameterServer):
    """z <- opt(z, g(y)); x <- (1 - c) x + c z, c = 1/t; workers are sent y = (1 - beta) z + beta x. Evaluated at x.

    Defazio et al. 2024, "The road less scheduled"; its composition with a parameter server is ours. beta = 0: z is
    plain ASGD and x its running mean.
    """

    line = "ASGD at an interpolation of the iterate and its running mean"
    paper = "-"
    cite = ("defazio2024",)

    def __init__(self, opt: Factory, *, beta: float = 0.9) -> None:
        self.beta = number("beta", beta, 0.0, 1.0)
        super().__init__(opt, view=self._view)

    def init_server(self, x0: Any, world: World) -> Server:
        s = super().init_server(x0, world)
        s.memory.update(mean=x0, mean_version=0)
        return s

    def _mean(self, s: Server) -> Any:
        """x, brought up to the version: one step behind at most, because every step ends with a reply."""
        if s.memory["mean_version"] < s.version:
            weights = s.memory.setdefault("weights", 0.0)
            eta = s.opt.lr * self.rate(s.samples)
            s.memory["weights"] = weights + eta**2
            c = eta**2 / s.memory["weights"]
            s.memory["mean"] = (1 - c) * s.memory["mean"] + c * s.x
            s.memory["mean_version"] = s.version
        return s.memory["mean"]

    def _view(self, s: Server, worker: int) -> View:
        x = self._mean(s)
        return View(s.x if self.beta == 0 else (1 - self.beta) * s.x + self.beta * x, s.version)

    def parameters(self, s: Server, workers: Mapping[int, Any]) -> Any:
        return s.memory["mean"]
