"""FedBuff: the server buffers the differences that workers push, and steps with their mean."""

from functools import partial
from math import sqrt
from typing import Any

import torch

from offbeat.optim.steppers import Factory
from offbeat.solvers.local_steps import LocalSteps
from offbeat.solvers.options import choice, number, whole
from offbeat.solvers.parameter_server import Arrival, Server


class FedBuff(LocalSteps[Server]):
    """buf <- buf + s(tau) D_i, s = 1 / sqrt(1 + tau); after K pushes x <- x - eta_g buf / K.

    A worker takes its local steps, pushes D_i = x_read - x_i, and goes on from the x it is sent at once. With E = K = 1
    and `weight="none"` it is ASGD at learning rate eta eta_g. Mean staleness (W - 1) / K.
    Nguyen et al. 2022, "Federated learning with buffered asynchronous aggregation", Algorithm 1 [reconstructed].

    Args:
        opt: makes the optimizer of each worker; its learning rate is eta.
        steps: E, the local steps between two pushes. Default: 1.
        K: K, how many pushes make a step of the server. Default: 10.
        server_lr: eta_g, the server's learning rate. Default: 1.
        server_momentum: the server's momentum. Default: 0.
        weight: s, "root" (1 / sqrt(1 + tau)) or "none" (1). Default: "root".
    """

    line = "local steps; the server steps after K pushed differences"
    paper = "-"
    cite = ("nguyen2022fedbuff",)

    def __init__(
        self,
        opt: Factory,
        *,
        steps: int = 1,
        K: int = 10,
        server_lr: float = 1.0,
        server_momentum: float = 0.0,
        weight: str = "root",
    ) -> None:
        self.K, self.weight = whole("K", K), choice("weight", weight, ("root", "none"))
        mu = number("server_momentum", server_momentum, 0.0, 1.0, open_end=True)
        server = partial(torch.optim.SGD, lr=number("server_lr", server_lr, 1e-300), momentum=mu)
        super().__init__(opt, server, whole("steps", steps), correct=self._weigh, collect=self._enough)

    def _weigh(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        return arrival.gradient.value, 1.0 / sqrt(1 + arrival.tau) if self.weight == "root" else 1.0

    def _enough(self, s: Server) -> int:
        return self.K if len(s.held) >= self.K else 0
