"""DANA-Zero: asynchronous momentum that looks ahead to where the parameters will be when the gradient arrives."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core.effects import ServerEffect, View
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import number, plain_sgd
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class DanaServer(Server):
    """A server with a velocity for each worker, and their sum."""

    v: dict[int, Any] = field(default_factory=dict)
    total: Any = None
    """None before the first gradient."""


class DanaZero(ParameterServer[DanaServer, Worker]):
    """v_i <- mu v_i + g; x <- x - eta v_i; send x_hat = x - eta mu sum_j v_j. Evaluated at x.

    Hakimi et al. 2019, "Taming momentum in a distributed asynchronous environment" [reconstructed].

    Args:
        opt: makes the server's optimizer, which must be plain SGD; its learning rate is eta.
        momentum: mu. Default: 0.9.
    """

    line = "per-worker momentum; workers are sent the look-ahead point"
    paper = "-"
    needs_answer = "it looks ahead by one gradient of each worker, and there would be two"
    cite = ("hakimi2019dana",)
    vectors = 3
    records: ClassVar[tuple[type, ...]] = (DanaServer, Worker, Held)
    server_state = DanaServer
    at_once = True

    def __init__(self, opt: Factory, *, momentum: float = 0.9) -> None:
        plain_sgd(opt, "dana-zero", "its momentum is solver.momentum, one buffer a worker")
        self.momentum = number("momentum", momentum, 0.0, 1.0, open_end=True)
        super().__init__(opt, correct=self._accumulate, view=self._look_ahead)

    def _accumulate(self, s: DanaServer, arrival: Arrival) -> tuple[Any, float]:
        i, g = arrival.worker, arrival.gradient.value
        old = s.v.get(i)
        v = g if old is None else self.momentum * old + g
        total = 0.0 * g if s.total is None else s.total
        s.total = total + v if old is None else total + (v - old)
        s.v[i] = v
        return v, 1.0

    def _look_ahead(self, s: DanaServer, worker: int) -> View:
        if s.total is None:
            return View(s.x, s.version)
        eta = s.opt.lr * self.rate(s.samples)
        return View(s.x - eta * self.momentum * s.total, s.version)

    def on_lost(self, s: DanaServer, worker: int) -> Iterator[ServerEffect]:
        """Nothing more will come of its momentum."""
        if worker in s.v:
            s.total = s.total - s.v.pop(worker)
        yield from super().on_lost(s, worker)
