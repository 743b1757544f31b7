"""Delay-compensated ASGD."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.optim.steppers import Factory
from offbeat.solvers.options import flag, number, without_effect
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class CompensatingServer(Server):
    """A server with MS_m, the mean square of each worker's recent gradients."""

    mean_square: dict[int, Any] = field(default_factory=dict)


class DCASGD(ParameterServer[CompensatingServer, Worker]):
    """x <- opt(x, g + lambda g * g * (x - x_bak(m))), elementwise; x_bak(m) is what worker m was sent.

    g * g stands for the diagonal of the Hessian. The adaptive variant scales lambda by the size of recent gradients of
    the same worker: MS_m <- m MS_m + (1 - m) g * g, lambda_t = lambda_0 / sqrt(MS_m + 1e-7).

    Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation", Algorithm 2; Algorithm 1 of
    lamour2023. The mean over a batch of B samples shrinks g * g, so that a good lambda grows like B.

    Args:
        opt: makes the server's optimizer.
        lam: lambda, the strength of the compensation; 0 is ASGD. Default: 0.04, the paper's on CIFAR-10; 2 and 5 in
            lamour2023; 2 for the adaptive variant.
        adaptive: whether lambda is scaled by recent gradients. Default: false.
        decay: m, the decay of their mean square. Default: 0.95.
    """

    line = "ASGD with delay compensation by g*g*(x - x_read)"
    paper = "lamour2023"
    needs_answer = (
        "its correction is measured from what a worker was sent last, and the gradient would be of what came before"
    )
    cite = ("zheng2017dcasgd",)
    records: ClassVar[tuple[type, ...]] = (CompensatingServer, Worker, Held)
    server_state = CompensatingServer
    elementwise = True
    at_once = True

    def __init__(self, opt: Factory, *, lam: float = 0.04, adaptive: bool = False, decay: float = 0.95) -> None:
        self.lam = number("lam", lam)
        self.adaptive, self.decay = flag("adaptive", adaptive), number("decay", decay, 0.0, 1.0, open_end=True)
        if not self.adaptive:
            without_effect("decay", decay, 0.95, "without solver.adaptive")
        super().__init__(opt, correct=self._compensate if self.lam else None)

    def _compensate(self, s: CompensatingServer, arrival: Arrival) -> tuple[Any, float]:
        m, g = arrival.worker, arrival.gradient.value
        lam: Any = self.lam
        if self.adaptive:
            s.mean_square[m] = self.decay * s.mean_square.get(m, 0.0) + (1 - self.decay) * g * g
            lam = self.lam / (s.mean_square[m] + 1e-7) ** 0.5
        x_bak = s.sent[m].x
        return g + lam * g * g * (s.x - x_bak), 1.0
