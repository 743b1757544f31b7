"""What the three forms of asynchronous momentum SGD share, which are different algorithms.

With eta constant, `multi-asgd` and `worker-momentum` coincide; a single buffer on the server (`async-momentum`)
compounds with the momentum that asynchrony itself brings (Mitliagkas et al. 2016).
"""

from typing import Any

import torch

from offbeat.optim.steppers import Factory
from offbeat.solvers.options import flag, number, plain_sgd


class Velocity:
    """v <- mu v + g, and the direction to take: v or, with Nesterov's look-ahead, g + mu v.

    Args:
        opt: the solver's optimizer, which must be plain SGD.
        solver: the solver's name, for the refusal of another.
        momentum: mu.
        nesterov: whether to look ahead.
    """

    def __init__(self, opt: Factory, solver: str, momentum: float, nesterov: bool) -> None:
        plain_sgd(opt, solver, "the momentum is solver.momentum")
        self.mu, self.nesterov = number("momentum", momentum, 0.0, 1.0, open_end=True), flag("nesterov", nesterov)

    def advance(self, v: Any, g: Any) -> tuple[Any, Any]:
        """The new v (g itself at first, when v is None) and the direction; torch's bits."""
        v = g if v is None else self.mu * v + g
        return v, torch.add(g, v, alpha=self.mu) if self.nesterov else v
