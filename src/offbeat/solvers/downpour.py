"""Downpour SGD: workers fetch and push at periods of their own, and go on by themselves in between."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from offbeat.core.effects import Call, Grad, Gradient, Reply, ServerEffect, View
from offbeat.core.solver import Round, World
from offbeat.solvers.checks import base_rate, choice, number, plain_sgd, whole
from offbeat.solvers.local_steps import part, together
from offbeat.solvers.optimizers import AnyStepper, Factory, start
from offbeat.solvers.parameter_server import Held, ParameterServer, Server, Worker


class Accrued(Gradient, eq=False, gc=False):
    """What a worker has accrued since its last push, and whether it wants the parameters back."""

    fetch: bool = False


@dataclass(slots=True)
class Replica:
    """A worker with parameters of its own, at step k."""

    view: View | None
    x: Any
    k: int = 0
    accrued: Any = None
    parts: tuple[Gradient, ...] = ()


class Downpour(ParameterServer):
    """Worker, at step k = 0, 1, ...:

        if k mod n_fetch = 0: x_i <- x
        g = g(x_i);  a <- a + g;  x_i <- x_i - eta g
        if k mod n_push = 0: push a;  a <- 0

    Server: x <- opt(x, a), in the paper Adagrad (`optimizer.name=adagrad`): K <- K + a^2; x <- x - gamma a / sqrt(K).
    As written there the first push holds one gradient and the others n_push, and a fetch
    overwrites local steps. `push="delta"` sends -sum eta g instead, which the server adds (the variant in Zhang et al.
    2015). eta is `local_lr`, by default the optimizer's. A push that falls together with the next fetch is one
    exchange, so that n_push = n_fetch = 1 is ASGD; pushes are waited for.
    Dean et al. 2012, "Large scale distributed deep networks", Algorithm 7.1 [reconstructed]; cited by jain2018. Its
    warm start by a single replica is `introduce`.
    """

    line = "ASGD with local steps between pushes and fetches"
    paper = "jain2018"
    cite = ("dean2012", "duchi2011adagrad")
    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held, Replica, Accrued)

    def __init__(
        self,
        opt: Factory,
        *,
        n_push: int = 1,
        n_fetch: int = 1,
        push: str = "gradient",
        local_lr: float | None = None,
    ) -> None:
        super().__init__(opt)
        self.n_push, self.n_fetch = whole("n_push", n_push), whole("n_fetch", n_fetch)
        self.pushes = choice("push", push, ("gradient", "delta"))
        if self.pushes == "delta":
            plain_sgd(opt, "downpour with push='delta'", "the server adds what it is sent")
        self.local_lr = base_rate(opt) if local_lr is None else number("local_lr", local_lr, 1e-300)

    def server_optimizer(self, x0: Any, world: World) -> AnyStepper:
        if self.pushes == "delta":
            return start(partial(torch.optim.SGD, lr=1.0), x0, world.layout)
        return super().server_optimizer(x0, world)

    def server_rate(self, s: Server) -> float:
        return 1.0 if self.pushes == "delta" else super().server_rate(s)

    def init_worker(self, rank: int, x0: Any, world: World) -> Any:
        view = super().init_worker(rank, x0, world).view
        return Replica(view, None if view is None else view.x)

    def round(self, w: Any) -> Round:
        if w.view is None:
            w.view = yield Call()
            w.x = w.view.x
            return
        g = yield Grad(w.x, w.view.version)
        value = self.bounded(g.value)
        step = self.local_lr * self.rate(g.work + g.samples) * value
        mine = step if self.pushes == "delta" else value
        w.accrued = mine if w.accrued is None else w.accrued + mine
        w.parts, w.x = (*w.parts, part(g, w.view)), w.x - step
        pushing, fetching = w.k % self.n_push == 0, (w.k + 1) % self.n_fetch == 0
        w.k += 1
        view = None
        if pushing:
            push = _accrued(together(w.parts, w.accrued), fetching)
            w.accrued, w.parts = None, ()
            view = yield Call(push)
        elif fetching:
            view = yield Call()
        if view is not None:
            w.view, w.x = view, view.x

    def on_call(self, s: Server, worker: int, payload: Any) -> Iterator[ServerEffect]:
        for effect in super().on_call(s, worker, payload):
            if type(effect) is Reply and effect.worker == worker and payload is not None and not payload.fetch:
                yield Reply(worker, None)
            else:
                yield effect

    def kept(self, w: Any) -> Iterable[Gradient]:
        return () if w is None else w.parts


def _accrued(g: Gradient, fetch: bool) -> Accrued:
    return Accrued(**{name: getattr(g, name) for name in Gradient.__struct_fields__}, fetch=fetch)
