"""Downpour SGD: workers fetch and push at periods of their own, and go on by themselves in between."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from msgspec.structs import asdict

from offbeat.core import trace
from offbeat.core.effects import Call, Grad, Gradient, Reply, ServerEffect
from offbeat.core.solver import Round, World
from offbeat.optim.factories import base_rate
from offbeat.optim.steppers import AnyStepper, Factory, start
from offbeat.solvers.local_steps import part, together
from offbeat.solvers.options import choice, number, plain_sgd, whole
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


class AccruedPush(Gradient, eq=False, gc=False):
    """What a worker has accrued since its last push, and whether it wants the parameters back."""

    fetch: bool = False


@dataclass(slots=True)
class DownpourWorker(Worker):
    """A worker with parameters of its own, at step k; `view` is what it last fetched."""

    x: Any = None
    k: int = 0
    accrued: Any = None
    """a; None where nothing was accrued since the last push."""
    parts: tuple[Gradient, ...] = ()
    """The gradients in it."""

    def accrue(self, g: Gradient, value: Any) -> None:
        self.accrued = value if self.accrued is None else self.accrued + value
        self.parts = (*self.parts, g)

    def take(self, fetch: bool) -> AccruedPush:
        """What was accrued, to be pushed."""
        push = together(self.parts, self.accrued)
        self.accrued, self.parts = None, ()
        return AccruedPush(**asdict(push), fetch=fetch)


class Downpour(ParameterServer[Server, DownpourWorker]):
    """Worker, at step k = 0, 1, ...:

        if k mod n_fetch = 0: x_i <- x
        g = g(x_i);  a <- a + g;  x_i <- x_i - eta g
        if k mod n_push = 0: push a;  a <- 0

    Server: x <- opt(x, a), in the paper Adagrad (`optimizer.name=adagrad`): K <- K + a^2; x <- x - gamma a / sqrt(K).
    As written there the first push holds one gradient and the others n_push, and a fetch overwrites local steps. A
    push that falls together with the next fetch is one exchange, so that n_push = n_fetch = 1 is ASGD; pushes are
    waited for. Dean et al. 2012, "Large scale distributed deep networks", Algorithm 7.1 [reconstructed]; cited by
    jain2018. Its warm start by a single replica is `introduce`.

    Args:
        opt: makes the server's optimizer.
        n_push: n_push, the steps between two pushes. Default: 1.
        n_fetch: n_fetch, the steps between two fetches. Default: 1.
        push: what is accrued: "gradient" (g) or "delta" (eta g, which the server subtracts: the variant in Zhang et
            al. 2015). Default: "gradient".
        local_lr: eta, the learning rate on the workers. Default: the optimizer's.
    """

    line = "ASGD with local steps between pushes and fetches"
    paper = "jain2018"
    needs_answer = "its workers take steps of their own between messages: solver.n_push and solver.n_fetch say how many"
    cite = ("dean2012", "duchi2011adagrad")
    vectors = 4
    records: ClassVar[tuple[type, ...]] = (Server, DownpourWorker, Held, AccruedPush)
    worker_state = DownpourWorker

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
        self.delta = choice("push", push, ("gradient", "delta")) == "delta"
        if self.delta:
            plain_sgd(opt, "downpour with push='delta'", "the server adds what it is sent")
        self.local_lr = base_rate(opt) if local_lr is None else number("local_lr", local_lr, 1e-300)

    def server_optimizer(self, x0: Any, world: World) -> AnyStepper:
        if self.delta:
            return start(partial(torch.optim.SGD, lr=1.0), x0, world.layout)
        return super().server_optimizer(x0, world)

    def server_rate(self, s: Server) -> float:
        return 1.0 if self.delta else super().server_rate(s)

    def init_worker(self, rank: int, x0: Any, world: World) -> DownpourWorker:
        w = super().init_worker(rank, x0, world)
        w.x = None if w.view is None else w.view.x
        return w

    def round(self, w: DownpourWorker) -> Round:
        if w.view is None:
            w.view = yield Call()
            w.x = w.view.x
            return
        g = yield Grad(w.x, w.view.version)
        value = self.bounded(g.value)
        step = self.local_lr * self.rate(g.work + g.samples) * value
        w.accrue(part(g, w.view), step if self.delta else value)
        w.x = w.x - step
        push, fetch = w.k % self.n_push == 0, (w.k + 1) % self.n_fetch == 0
        w.k += 1
        if push or fetch:
            view = yield Call(w.take(fetch) if push else None)
            if fetch:
                w.view, w.x = view, view.x

    def on_call(self, s: Server, worker: int, payload: AccruedPush | None) -> Iterable[ServerEffect]:
        if payload is None or payload.fetch:
            return super().on_call(s, worker, payload)
        return self._push_alone(s, worker, payload)

    def _push_alone(self, s: Server, worker: int, payload: AccruedPush) -> Iterable[ServerEffect]:
        yield from self.use(s, Arrival(worker, payload, trace.staleness(s.version, payload.version)))
        yield Reply(worker, None)
        yield from self.admit(s)

    def kept(self, w: DownpourWorker | None) -> Iterable[Gradient]:
        return () if w is None else w.parts
