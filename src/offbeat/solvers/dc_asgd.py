"""Delay-compensated ASGD."""

from typing import Any

from offbeat.solvers.checks import flag, number
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server


class DCASGD(ParameterServer):
    """x <- opt(x, g + lambda g * g * (x - x_bak(m))), elementwise; x_bak(m) is what worker m was sent.

    g * g stands for the diagonal of the Hessian. `adaptive=True` scales lambda by the size of recent gradients of the
    same worker: MS_m <- m MS_m + (1 - m) g * g, lambda_t = lambda_0 / sqrt(MS_m + 1e-7).

    Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation", Algorithm 2; Algorithm 1 of
    lamour2023. `lam`: 0.04 in the paper on CIFAR-10, 2 and 5 in lamour2023; adaptive: 2, with `decay` m = 0.95. The
    mean over a batch of B samples shrinks g * g, so that a good lambda grows like B.
    """

    line = "ASGD with delay compensation by g*g*(x - x_read)"
    paper = "lamour2023"
    cite = ("zheng2017dcasgd",)
    elementwise = True

    def __init__(self, opt: Factory, *, lam: float = 0.04, adaptive: bool = False, decay: float = 0.95) -> None:
        self.lam = number("lam", lam)
        self.adaptive, self.decay = flag("adaptive", adaptive), number("decay", decay, 0.0, 1.0, open_end=True)
        super().__init__(opt, correct=self._compensate if self.lam else None)

    def _compensate(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        g = arrival.gradient.value
        lam: Any = self.lam
        if self.adaptive:
            means = s.memory.setdefault("mean_square", {})
            means[arrival.worker] = self.decay * means.get(arrival.worker, 0.0) + (1 - self.decay) * g * g
            lam = self.lam / (means[arrival.worker] + 1e-7) ** 0.5
        x_bak = s.sent[arrival.worker].x
        return g + lam * g * g * (s.x - x_bak), 1.0
