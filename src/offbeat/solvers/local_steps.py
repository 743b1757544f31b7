"""What asynchronous methods share whose workers take several steps of their own and push how far they came."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core.effects import Call, Grad, Gradient, View
from offbeat.core.solver import Round, World
from offbeat.optim.factories import base_rate
from offbeat.optim.steppers import AnyStepper, Factory, start, whole_only
from offbeat.optim.worker_stepper import WorkerStepper, revived
from offbeat.solvers.parameter_server import Held, ParameterServer, S, Server, Worker


@dataclass(slots=True)
class LocalWorker(Worker):
    """A worker between two pushes: `view` is where it set out."""

    x: Any = None
    """Where it is."""
    opt: WorkerStepper = field(init=False)
    steps: int = 1
    """How many it takes before it pushes."""
    parts: tuple[Gradient, ...] = ()
    """The gradients it has used since the last push."""


class LocalSteps(ParameterServer[S, LocalWorker]):
    """x_i <- opt(x_i, g(x_i)), H times from the x that was sent; then push D_i = x_read - x_i in place of a gradient.

    The configured optimizer and its schedule work on the workers, where their state stays; the server has its own.
    A push has the staleness of the x it set out from, and so have all its gradients.

    Args:
        opt: makes the optimizer of each worker.
        server: makes the server's optimizer.
        steps: H, the steps between two pushes.
        slots: those of the parameter server.
    """

    records: ClassVar[tuple[type, ...]] = (Server, LocalWorker, Held)
    worker_state = LocalWorker
    needs_answer = "its workers take steps of their own between messages: solver.steps says how many"

    def __init__(self, opt: Factory, server: Factory, steps: int, **slots: Any) -> None:
        super().__init__(opt, **slots)
        self.server, self.steps, self.eta = server, steps, base_rate(opt)

    def server_optimizer(self, x0: Any, world: World) -> AnyStepper:
        return start(self.server, x0, world.layout)

    def why_whole_optimizer(self) -> str | None:
        return whole_only(self.server)

    def server_rate(self, s: S) -> float:
        return 1.0

    def init_worker(self, rank: int, x0: Any, world: World) -> LocalWorker:
        w = super().init_worker(rank, x0, world)
        w.x = None if w.view is None else w.view.x
        w.opt, w.steps = self._worker_optimizer(world), self.steps_of(rank)
        return w

    def steps_of(self, rank: int) -> int:
        """How many steps this worker takes between two pushes."""
        return self.steps

    def revive(self, w: LocalWorker, world: World) -> LocalWorker:
        w.opt = revived(w.opt, self._worker_optimizer(world))
        return w

    def _worker_optimizer(self, world: World) -> WorkerStepper:
        return WorkerStepper(self.opt, world.layout, self.multipliers)

    def round(self, w: LocalWorker) -> Round:
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

    def lr(self, s: S, work: float) -> float:
        """That of the workers."""
        return self.eta * self.rate(work)

    def kept(self, w: LocalWorker | None) -> Iterable[Gradient]:
        return () if w is None else w.parts


def part(g: Gradient, view: View) -> Gradient:
    """A gradient as it stands in the books: where its worker set out, without its value."""
    made = g.carrying(None)
    made.at, made.version = view.x, view.version
    return made


def together(parts: Sequence[Gradient], value: Any) -> Gradient:
    """One push for several gradients: begun with the first of them, computed with the last."""
    first = parts[0]
    return Gradient(
        value,
        loss=sum(p.loss for p in parts) / len(parts),
        samples=sum(p.samples for p in parts),
        correct=first.correct,
        norm=first.norm,
        at=first.at,
        version=first.version,
        source=first.source,
        draw=first.draw,
        started=first.started,
        computed=parts[-1].computed,
        work=first.work,
        parts=tuple(parts),
    )
