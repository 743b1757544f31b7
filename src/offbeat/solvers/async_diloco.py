"""Asynchronous DiLoCo: delayed Nesterov momentum on the differences that workers push."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import Any, ClassVar

import torch

from offbeat.core.solver import World
from offbeat.optim.steppers import Factory
from offbeat.solvers.local_steps import LocalSteps, LocalWorker
from offbeat.solvers.options import number, whole
from offbeat.solvers.parameter_server import Arrival, Held, Server


@dataclass(slots=True)
class DelayedNesterovServer(Server):
    """A server whose momentum moves once in N pushes."""

    pushes: int = 0
    """t."""
    sum: Any = None
    """S, the pushes since the momentum last moved; None: there are none."""
    m: Any = None
    """None before the first N pushes."""


class AsyncDiLoCo(LocalSteps[DelayedNesterovServer]):
    """Delayed Nesterov on the pushes D_i: momentum moves once in N of them, and x on each.

        push number t:       S <- S + D_i
        N does not divide t: x <- x - eps (c b m + D_i / N)
        N divides t:         m <- b m + S / N;  S <- 0;  x <- x - eps ((1 - c N + c) b m + D_i / N)

    With c = 0, N pushes are one step of Nesterov's momentum with their mean. The optimizer (AdamW in the paper) is on
    the workers. Liu et al. 2024, "Asynchronous local-SGD training for language modeling", Algorithm 3.

    Args:
        opt: makes the optimizer of each worker.
        steps: H, the local steps between two pushes. Default: 50.
        server_lr: eps, the server's learning rate. Default: 0.7.
        momentum: b. Default: 0.9.
        N: N; 0 takes N = W. Default: 0.
        c: c, how much of the momentum each push carries. Default: 0.
        speeds: v_i, one number a worker, for dynamic local updates (DyLU): worker i takes floor(H v_i / max v) steps,
            so that all take about as long. Default: none, and all take H.
    """

    line = "local steps; delayed Nesterov momentum on the pushed differences"
    paper = "-"
    cite = ("liu2024asynclocal", "douillard2023diloco")
    vectors = 3
    records: ClassVar[tuple[type, ...]] = (DelayedNesterovServer, LocalWorker, Held)
    server_state = DelayedNesterovServer

    def __init__(
        self,
        opt: Factory,
        *,
        steps: int = 50,
        server_lr: float = 0.7,
        momentum: float = 0.9,
        N: int = 0,
        c: float = 0.0,
        speeds: Sequence[float] = (),
    ) -> None:
        self.momentum, self.N = number("momentum", momentum, 0.0, 1.0, open_end=True), whole("N", N, 0)
        self.c = number("c", c, 0.0, 1.0)
        self.speeds = [number("speeds", v, 1e-300) for v in speeds]
        server = partial(torch.optim.SGD, lr=number("server_lr", server_lr, 1e-300))
        super().__init__(opt, server, whole("steps", steps), correct=self._delayed_nesterov)

    def why_not(self, world: World) -> str | None:
        if self.speeds and len(self.speeds) != world.workers:
            return f"solver.speeds must hold one for each of the {world.workers} workers, got {self.speeds}"
        return super().why_not(world)

    def steps_of(self, rank: int) -> int:
        return max(1, floor(self.steps * self.speeds[rank] / max(self.speeds))) if self.speeds else self.steps

    def _delayed_nesterov(self, s: DelayedNesterovServer, arrival: Arrival) -> tuple[Any, float]:
        D, N, b, c = arrival.gradient.value, self.N or s.world.workers, self.momentum, self.c
        s.pushes += 1
        S = D if s.sum is None else s.sum + D
        m = 0.0 * D if s.m is None else s.m
        if s.pushes % N:
            s.sum = S
            return c * b * m + D / N, 1.0
        s.sum, s.m = None, b * m + S / N
        return (1 - c * N + c) * b * s.m + D / N, 1.0
