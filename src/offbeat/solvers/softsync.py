"""n-softsync: a step after so many gradients, from whomever."""

from offbeat.core.solver import World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import whole
from offbeat.solvers.parameter_server import ParameterServer, Server, Worker
from offbeat.solvers.staleness_aware import inversely


class Softsync(ParameterServer[Server, Worker]):
    """n-softsync: step after c = floor(W / n) gradients, x <- x - (1/c) sum_l eta(tau_l) g_l, eta(tau) = eta_0 / tau.

    n = W is ASGD with eta / tau; n = 1 waits for any W gradients, not one of each. Mean staleness (W - 1) / c.
    Gupta, Zhang and Milthorpe 2016; Zhang et al. 2016 [reconstructed].

    Args:
        opt: makes the server's optimizer; its learning rate is eta_0.
        n: n, how many steps there are for W gradients. Default: 1.
    """

    line = "a step after every W/n gradients, each at eta / tau"
    paper = "-"
    needs_answer = None
    cite = ("zhang2016staleness",)

    def __init__(self, opt: Factory, *, n: int = 1) -> None:
        self.n = whole("n", n)
        super().__init__(opt, correct=inversely, collect=self._enough)

    def why_not(self, world: World) -> str | None:
        if self.n > world.workers:
            return f"solver.n must be at most the number of workers, {world.workers}, got {self.n}"
        return super().why_not(world)

    def _enough(self, s: Server) -> int:
        c = s.world.workers // self.n
        return c if len(s.held) >= c else 0
