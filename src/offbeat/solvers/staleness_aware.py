"""ASGD at a learning rate that falls with staleness. The step is scaled, not the gradient: Adam would cancel that."""

from typing import Any

from offbeat.optim.steppers import Factory
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server, Worker


def inversely(s: Server, arrival: Arrival) -> tuple[Any, float]:
    """Correct: eta(tau) = eta_0 / tau, eta_0 when fresh (Zhang et al. 2015 count tau from 1)."""
    return arrival.gradient.value, 1.0 / max(1, arrival.tau)


class StalenessAware(ParameterServer[Server, Worker]):
    """x <- opt(x, g) at eta_0 / tau. Zhang et al. 2016, "Staleness-aware async-SGD" [reconstructed].

    Args:
        opt: makes the server's optimizer; its learning rate is eta_0.
    """

    line = "ASGD at learning rate eta / tau"
    paper = "-"
    needs_answer = None
    cite = ("zhang2016staleness",)
    at_once = True

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt, correct=inversely)
