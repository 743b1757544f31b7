"""Asynchronous momentum SGD in its three forms, which are different algorithms.

With eta constant, `multi-asgd` and `worker-momentum` coincide; a single buffer on the server compounds with the
momentum that asynchrony itself brings (Mitliagkas et al. 2016).
"""

from typing import Any, ClassVar

import torch

from offbeat.solvers.checks import flag, number, plain_sgd
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server


class _Momentum(ParameterServer):
    """What the three share: their hyper-parameters, and plain SGD beneath."""

    name: ClassVar[str]

    def __init__(self, opt: Factory, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        plain_sgd(opt, self.name, "the momentum is solver.momentum")
        self.momentum, self.nesterov = number("momentum", momentum, 0.0, 1.0, open_end=True), flag("nesterov", nesterov)
        super().__init__(opt, **self.slots())

    def slots(self) -> dict[str, Any]:
        return {"correct": self._accumulate}

    def _accumulate(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        raise NotImplementedError

    def _advance(self, v: Any, g: Any) -> tuple[Any, Any]:
        """v <- mu v + g (v = g at first), and the direction: v, or g + mu v for Nesterov; torch's bits."""
        v = g if v is None else self.momentum * v + g
        return v, torch.add(g, v, alpha=self.momentum) if self.nesterov else v


class AsyncMomentum(_Momentum):
    """One buffer on the server: v <- mu v + g; x <- x - eta v. Nesterov: x <- x - eta (g + mu v).

    The "Async MSGD" of wongpanich2020 and the momentum of lamour2023 (heavy-ball in its code, Nesterov in its text).
    On a quadratic of curvature h at constant staleness 1: stable for eta h < 1 - mu.
    """

    name = "async-momentum"
    line = "ASGD with one momentum buffer on the server"
    paper = "wongpanich2020, lamour2023"
    cite = ("mitliagkas2016", "sutskever2013")

    def _accumulate(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        s.memory["v"], u = self._advance(s.memory.get("v"), arrival.gradient.value)
        return u, 1.0


class MultiASGD(_Momentum):
    """One buffer a worker, on the server: v_i <- mu v_i + g; x <- x - eta v_i. Nesterov: x <- x - eta (g + mu v_i)."""

    name = "multi-asgd"
    line = "ASGD with a momentum buffer for each worker, on the server"
    paper = "wongpanich2020"
    cite = ("hakimi2019dana",)

    def _accumulate(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        v, i = s.memory.setdefault("v", {}), arrival.worker
        v[i], u = self._advance(v.get(i), arrival.gradient.value)
        return u, 1.0


class WorkerMomentum(_Momentum):
    """The worker sends its own momentum: v <- mu v + g; push v (Nesterov: g + mu v); the server's step is plain."""

    name = "worker-momentum"
    line = "ASGD where each worker pushes its own momentum"
    paper = "wongpanich2020"
    cite = ("lin2018dgc",)

    def slots(self) -> dict[str, Any]:
        return {"push": self._advance}
