"""Asynchronous methods whose workers take several steps of their own and push how far they came."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import Any, ClassVar

import torch

from offbeat.core.codec import Live
from offbeat.core.effects import Call, Grad, Gradient, View
from offbeat.core.errors import ConfigError
from offbeat.core.solver import Round, World
from offbeat.solvers.checks import base_rate, choice, number, whole
from offbeat.solvers.optimizers import AnyStepper, Factory, Fresh, start
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker
from offbeat.solvers.staleness import root


@dataclass(slots=True)
class Traveller:
    """A worker between two pushes: where it set out, where it is, and the gradients it has used since."""

    view: View | None
    x: Any
    opt: Any
    steps: int
    parts: tuple[Gradient, ...] = ()


class LocalSteps(ParameterServer):
    """x_i <- opt(x_i, g(x_i)), H times from the x that was sent; then push D_i = x_read - x_i in place of a gradient.

    The configured optimizer and its schedule work on the workers, where their state stays; the server has its own.
    A push has the staleness of the x it set out from, and so have all its gradients.
    """

    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held, Traveller)

    def __init__(self, opt: Factory, server: Factory, steps: int, **slots: Any) -> None:
        super().__init__(opt, **slots)
        self.server, self.steps, self.eta = server, steps, base_rate(opt)

    def server_optimizer(self, x0: Any, world: World) -> AnyStepper:
        return start(self.server, x0, world.layout)

    def server_rate(self, s: Server) -> float:
        return 1.0

    def init_worker(self, rank: int, x0: Any, world: World) -> Any:
        view = super().init_worker(rank, x0, world).view
        opt = Fresh(self.opt, world.layout, self.multipliers)
        return Traveller(view, None if view is None else view.x, opt, self.steps_of(rank))

    def steps_of(self, rank: int) -> int:
        return self.steps

    def round(self, w: Any) -> Round:
        if w.view is None:
            w.view = yield Call()
            w.x = w.view.x
        elif len(w.parts) == w.steps:
            parts, w.parts = w.parts, ()
            w.view = yield Call(together(parts, w.view.x - w.x))
            w.x = w.view.x
        else:
            g = yield Grad(w.x, w.view.version)
            w.parts = (*w.parts, part(g, w.view))
            work = g.work + g.samples
            w.x = w.opt.step_from(w.x, self.bounded(g.value), self.rate(work), work)

    def lr(self, s: Server, work: float) -> float:
        """That of the workers."""
        return self.eta * self.rate(work)

    def kept(self, w: Any) -> Iterable[Gradient]:
        return () if w is None else w.parts

    def revive(self, w: Any, world: World) -> Any:
        if isinstance(w.opt, Live):
            saved, w.opt = w.opt.saved, Fresh(self.opt, world.layout, self.multipliers)
            w.opt.load(saved)
        return w


class FedBuff(LocalSteps):
    """buf <- buf + s(tau) D_i, s = 1 / sqrt(1 + tau); after K pushes x <- x - eta_g buf / K.

    A worker goes on from the x it is sent at once. `steps` E, `K`, `server_lr` eta_g, `server_momentum`;
    `weight="none"` takes s = 1, and with E = K = 1 that is ASGD at learning rate eta eta_g. Mean staleness (W - 1) / K.
    Nguyen et al. 2022, "Federated learning with buffered asynchronous aggregation", Algorithm 1 [reconstructed].
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
        return arrival.gradient.value, root(arrival.tau) if self.weight == "root" else 1.0

    def _enough(self, s: Server) -> int:
        return self.K if len(s.held) >= self.K else 0


class AsyncDiLoCo(LocalSteps):
    """Delayed Nesterov on the pushes D_i: momentum moves once in N of them, and x on each.

        push number t:       S <- S + D_i
        N does not divide t: x <- x - eps (c b m + D_i / N)
        N divides t:         m <- b m + S / N;  S <- 0;  x <- x - eps ((1 - c N + c) b m + D_i / N)

    With c = 0, N pushes are one step of Nesterov's momentum with their mean. `steps` H on the worker, where the
    optimizer (AdamW in the paper) is; `N=0` takes N = W. `speeds`, one number a worker, are for dynamic local updates
    (DyLU): worker i takes floor(H v_i / max v) steps, so that all take about as long.
    Liu et al. 2024, "Asynchronous local-SGD training for language modeling", Algorithm 3.
    """

    line = "local steps; delayed Nesterov momentum on the pushed differences"
    paper = "-"
    cite = ("liu2024asynclocal", "douillard2023diloco")

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

    def init_server(self, x0: Any, world: World) -> Server:
        if self.speeds and len(self.speeds) != world.workers:
            raise ConfigError(f"solver.speeds must hold one for each of the {world.workers} workers, got {self.speeds}")
        return super().init_server(x0, world)

    def steps_of(self, rank: int) -> int:
        return max(1, floor(self.steps * self.speeds[rank] / max(self.speeds))) if self.speeds else self.steps

    def _delayed_nesterov(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        D, N, b, c = arrival.gradient.value, self.N or s.world.workers, self.momentum, self.c
        t = s.memory["pushes"] = s.memory.get("pushes", 0) + 1
        S = D if "sum" not in s.memory else s.memory["sum"] + D
        m = s.memory.get("m", 0.0 * D)
        if t % N:
            s.memory["sum"] = S
            return c * b * m + D / N, 1.0
        s.memory.pop("sum", None)
        m = s.memory["m"] = b * m + S / N
        return (1 - c * N + c) * b * m + D / N, 1.0


def part(g: Gradient, view: View) -> Gradient:
    """A gradient as it stands in the books: where its worker set out, without its value."""
    made = g.carrying(None)
    made.at, made.version = view.x, view.version
    return made


def together(parts: Sequence[Gradient], value: Any) -> Gradient:
    """One push for several gradients."""
    made = parts[0].carrying(value)
    made.parts = tuple(parts)
    made.samples = sum(p.samples for p in parts)
    made.loss = sum(p.loss for p in parts) / len(parts)
    made.computed = parts[-1].computed
    return made
