"""DANA-Slim: DANA with the momentum on the workers."""

from typing import ClassVar

from offbeat.optim.steppers import Factory
from offbeat.solvers.worker_momentum import WorkerMomentum


class DanaSlim(WorkerMomentum):
    """Worker: v <- mu v + g; push u = g + mu v. Server: X <- X - eta u, where X is the look-ahead point itself.

    Equals DANA-Zero's x_hat for constant eta, with no state on the server; with one worker it is Nesterov momentum.
    Hakimi et al. 2019, "Taming momentum in a distributed asynchronous environment" [reconstructed].

    Args:
        opt: makes the server's optimizer, which must be plain SGD; its learning rate is eta.
        momentum: mu. Default: 0.9.
    """

    line = "DANA with the momentum on the workers: push g + mu v"
    paper = "-"
    needs_answer = "it looks ahead by one gradient of each worker, and there would be two"
    vectors = 5
    cite: ClassVar[tuple[str, ...]] = ("hakimi2019dana",)
    name: ClassVar[str] = "dana-slim"

    def __init__(self, opt: Factory, *, momentum: float = 0.9) -> None:
        super().__init__(opt, momentum=momentum, nesterov=True)
