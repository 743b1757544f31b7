"""DANA: asynchronous momentum that looks ahead to where the parameters will be when the gradient arrives."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import ServerEffect, View
from offbeat.solvers.checks import number, plain_sgd
from offbeat.solvers.momentum import WorkerMomentum
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class DanaMemory:
    """The momentum of every worker, and their sum."""

    v: dict[int, Any]
    total: Any


class DanaZero(ParameterServer):
    """v_i <- mu v_i + g; x <- x - eta v_i; send x_hat = x - eta mu sum_j v_j.

    Hakimi et al. 2019, "Taming momentum in a distributed asynchronous environment" [reconstructed]. Evaluated at x.
    """

    line = "per-worker momentum; workers are sent the look-ahead point"
    paper = "-"
    cite = ("hakimi2019dana",)
    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held, DanaMemory)

    def __init__(self, opt: Factory, *, momentum: float = 0.9) -> None:
        plain_sgd(opt, "dana-zero", "its momentum is solver.momentum, one buffer a worker")
        self.momentum = number("momentum", momentum, 0.0, 1.0, open_end=True)
        super().__init__(opt, correct=self._accumulate, view=self._look_ahead)

    def _accumulate(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        i, g, mu = arrival.worker, arrival.gradient.value, self.momentum
        memory: DanaMemory = s.memory.setdefault("dana", DanaMemory({}, 0.0 * g))
        old = memory.v.get(i)
        v = g if old is None else mu * old + g
        memory.total = memory.total + v if old is None else memory.total + (v - old)
        memory.v[i] = v
        return v, 1.0

    def on_lost(self, s: Server, worker: int) -> Iterator[ServerEffect]:
        """Nothing more will come of its momentum."""
        memory: DanaMemory | None = s.memory.get("dana")
        if memory is not None and worker in memory.v:
            memory.total = memory.total - memory.v.pop(worker)
        yield from super().on_lost(s, worker)

    def _look_ahead(self, s: Server, worker: int) -> View:
        memory: DanaMemory | None = s.memory.get("dana")
        if memory is None:
            return View(s.x, s.version)
        eta = s.opt.lr * self.rate(s.samples)
        return View(s.x - eta * self.momentum * memory.total, s.version)


class DanaSlim(WorkerMomentum):
    """Worker: v <- mu v + g; push u = g + mu v. Server: X <- X - eta u, where X is the look-ahead point itself.

    Equals DANA-Zero's x_hat for constant eta, with no state on the server; with one worker it is Nesterov momentum.
    Hakimi et al. 2019 [reconstructed].
    """

    name = "dana-slim"
    line = "DANA with the momentum on the workers: push g + mu v"
    paper = "-"
    cite = ("hakimi2019dana",)

    def __init__(self, opt: Factory, *, momentum: float = 0.9) -> None:
        super().__init__(opt, momentum=momentum, nesterov=True)
