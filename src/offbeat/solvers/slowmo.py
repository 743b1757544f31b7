"""SlowMo: local SGD with a slow momentum over the averages."""

from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import Reduced
from offbeat.core.solver import World
from offbeat.optim.steppers import Factory
from offbeat.solvers.local_sgd import LocalReplica, LocalSGD
from offbeat.solvers.options import number
from offbeat.solvers.replica import NoServer, Replica


@dataclass(slots=True)
class SlowReplica(LocalReplica):
    """A worker that knows where its steps began, and has a slow velocity."""

    x0: Any = None
    u: Any = None


class SlowMo(LocalSGD[SlowReplica]):
    """Local SGD, then a slow momentum step: u <- beta u + (x_0 - xbar) / gamma; x <- x_0 - alpha gamma u.

    x_0 is where the H steps began, xbar the mean of where they ended, gamma the inner learning rate of the moment (for
    adaptive optimizers in name only). Wang et al. 2020, "SlowMo: improving communication-efficient distributed SGD with
    slow momentum"; defaults of torchdistx. beta = 0, alpha = 1 is local SGD.

    Args:
        opt: makes the optimizer of each worker; its learning rate is gamma.
        H: tau in the paper, the steps between two meetings. Default: 48.
        beta: beta, the slow momentum. Default: 0.5.
        alpha: alpha, the slow learning rate. Default: 1.
        momentum: what becomes of the optimizers' moments: "local", "reset" or "average", as in local SGD.
            Default: "local".
    """

    line = "local SGD with a slow momentum over the averages"
    vectors = 3
    cite: ClassVar[tuple[str, ...]] = ("wang2020slowmo",)
    records: ClassVar[tuple[type, ...]] = (SlowReplica, NoServer)
    replica: ClassVar[type[Replica]] = SlowReplica

    def __init__(
        self, opt: Factory, *, H: int = 48, beta: float = 0.5, alpha: float = 1.0, momentum: str = "local"
    ) -> None:
        super().__init__(opt, H=H, momentum=momentum)
        self.beta, self.alpha = number("beta", beta, 0.0, 1.0, open_end=True), number("alpha", alpha)

    def init_worker(self, rank: int, x0: Any, world: World) -> SlowReplica:
        w = super().init_worker(rank, x0, world)
        w.x0, w.u = x0, 0.0 * x0
        return w

    def outer(self, w: SlowReplica, mean: Reduced) -> Any:
        gamma = self.eta * self.rate(mean.work)
        w.u = self.beta * w.u + (w.x0 - mean.value) / gamma
        w.x0 = w.x0 - self.alpha * gamma * w.u
        return w.x0
