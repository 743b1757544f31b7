"""Plain SGD: one worker, no staleness. The reference that every other solver is compared with."""

from collections.abc import Callable

from offbeat.core.solver import World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import additive
from offbeat.solvers.parameter_server import ParameterServer, Server, Worker


class Plain(ParameterServer[Server, Worker]):
    """x <- opt(x, g(x)), on one worker.

    Args:
        opt: makes the optimizer.
    """

    line = "plain SGD on one worker"
    paper = "-"
    needs_answer = "its gradients are those of the newest parameters"
    alone = True
    at_once = True

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt)

    def why_not(self, world: World) -> str | None:
        if world.workers != 1:
            return f"plain runs on one worker, got workers={world.workers}: use --workers 1, or sync or asgd"
        return super().why_not(world)

    def rate_in_place(self) -> Callable[[float], float] | None:
        if self.clip is not None:
            return None
        eta = additive(self.opt, "plain", "the kernel trains in place")
        return lambda work: eta * self.rate(work)
