"""The parameter server: one solver with six slots; each named method is a row of values for them.

    worker:  g = grad(x_read);  x_read <- push(g)
    server:  on g from worker i, with staleness tau:
             gate     accept it?                         refuse otherwise
             correct  (direction, scale) from g          compensate for staleness
             collect  how many of the held go into a step now?     none: hold on
             opt      x <- opt(x, mean of the held directions), at `scale` times the learning rate
             release  whom to answer now
             view     what they are sent

An empty slot does nothing: accept, take g as it is, step on every gradient, answer the sender, send x.
Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core import trace
from offbeat.core.effects import Applied, Call, Grad, Gradient, Refused, Reply, ServerEffect, Stepped, View
from offbeat.core.reduction import weighted_mean
from offbeat.core.solver import Round, Solver, World
from offbeat.solvers.optimizers import Factory, NoStepper, Stepper, start


@dataclass(slots=True)
class Held:
    """A gradient that waits for its step, as corrected."""

    worker: int
    gradient: Gradient
    direction: Any
    scale: float


@dataclass(slots=True)
class Server:
    """The server's state."""

    x: Any
    version: int
    opt: Stepper | NoStepper
    live: set[int]
    held: list[Held] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    sent: dict[int, View] = field(default_factory=dict)
    """What each worker was last sent: the snapshot its gradient will be computed on."""
    samples: int = 0
    """The work clock."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the slots keep for themselves."""


@dataclass(slots=True)
class Worker:
    """A worker's state: what it was last sent; None until it has asked."""

    view: View | None


class Arrival:
    """A gradient at the server's door."""

    __slots__ = ("gradient", "refused", "tau", "worker")

    def __init__(self, worker: int, gradient: Gradient, tau: int) -> None:
        self.worker, self.gradient, self.tau = worker, gradient, tau
        self.refused = False


Gate = Callable[[Server, Arrival], bool]
Correct = Callable[[Server, Arrival], tuple[Any, float]]
Collect = Callable[[Server], int]
Release = Callable[[Server, Arrival, bool], Iterable[int]]
Publish = Callable[[Server, int], View]


class ParameterServer(Solver):
    """A row of six slots."""

    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held)

    def __init__(
        self,
        opt: Factory,
        *,
        gate: Gate | None = None,
        correct: Correct | None = None,
        collect: Collect | None = None,
        release: Release | None = None,
        view: Publish | None = None,
    ) -> None:
        self.opt = opt
        self.gate, self.correct, self.collect, self.release, self.view = gate, correct, collect, release, view

    def init_server(self, x0: Any, world: World) -> Server:
        s = Server(x0, 0, start(self.opt, x0, world.layout), set(world.present))
        s.sent = {i: View(x0, 0) for i in s.live}
        return s

    def init_worker(self, rank: int, x0: Any, world: World) -> Worker:
        return Worker(None if x0 is None else View(x0, 0))

    def round(self, w: Worker) -> Round:
        if w.view is None:
            w.view = yield Call()
            return
        g = yield Grad(w.view.x, w.view.version)
        w.view = yield Call(g)

    def on_call(self, s: Server, worker: int, payload: Gradient | None) -> Iterator[ServerEffect]:
        g = payload
        if g is None:  # a pull: the worker is new, or its gradient was cancelled
            yield self._send(s, worker)
            return
        tau = trace.staleness(s.version, g.version)
        assert tau is not None
        arrival = Arrival(worker, g, tau)
        stepping = False
        if self.gate is not None and not self.gate(s, arrival):
            arrival.refused = True
            s.samples += g.samples
            yield Refused(worker, g, s.version)
        else:
            direction, scale = (g.value, 1.0) if self.correct is None else self.correct(s, arrival)
            s.held.append(Held(worker, g, direction, scale))
            count = 1 if self.collect is None else self.collect(s)
            if count:
                stepping = True
                yield from self._step(s, count)
        if self.release is None:
            yield self._send(s, worker)
        else:
            for i in self.release(s, arrival, stepping):
                yield self._send(s, i)

    def on_join(self, s: Server, worker: int) -> Iterator[ServerEffect]:
        s.live.add(worker)
        yield from ()

    def on_lost(self, s: Server, worker: int) -> Iterator[ServerEffect]:
        """A barrier must not wait for the dead: the group re-forms without them."""
        s.live.discard(worker)
        s.waiting.discard(worker)
        count = self.collect(s) if self.collect is not None and s.held else 0
        if count:
            yield from self._step(s, count)
            for i in sorted(s.waiting):
                yield self._send(s, i)
            s.waiting.clear()

    def held(self, s: Server) -> list[tuple[int, Gradient]]:
        return [(h.worker, h.gradient) for h in s.held]

    def parameters(self, s: Server, workers: Mapping[int, Any]) -> Any:
        return s.x

    def lr(self, s: Server) -> float:
        return s.opt.lr

    def save_server(self, s: Server) -> Any:
        kept = {name: getattr(s, name) for name in Server.__slots__ if name != "opt"}
        return {**kept, "opt": s.opt.state()}

    def load_server(self, saved: Any, x0: Any, world: World) -> Server:
        opt = start(self.opt, x0, world.layout)
        opt.load(saved["opt"])
        return Server(**{**saved, "opt": opt})

    def _step(self, s: Server, count: int) -> Iterator[ServerEffect]:
        """x <- opt(x, sum_l n_l scale_l d_l / sum_l n_l scale_l) at the mean scale, in worker order."""
        taken, s.held = s.held[:count], s.held[count:]
        for h in taken:
            s.samples += h.gradient.samples
            yield Applied(h.worker, h.gradient, s.version, s.x)
        if count == 1:
            direction, factor = taken[0].direction, taken[0].scale
        else:
            taken.sort(key=lambda h: h.worker)  # stable: a worker's own gradients stay in order of arrival
            weights = [h.gradient.samples * h.scale for h in taken]
            direction = weighted_mean([h.direction for h in taken], weights)
            equal = all(h.scale == 1.0 for h in taken)
            factor = 1.0 if equal else sum(weights) / sum(h.gradient.samples for h in taken)
        s.x = s.opt.step(direction, factor)
        s.version += 1
        yield Stepped()

    def _send(self, s: Server, worker: int) -> Reply:
        view = View(s.x, s.version) if self.view is None else self.view(s, worker)
        s.sent[worker] = view
        return Reply(worker, view)


def everybody(s: Server) -> int:
    """Collect: all that are held, once every live worker has delivered."""
    return len(s.held) if s.live <= {h.worker for h in s.held} else 0


def wait(s: Server, arrival: Arrival, stepping: bool) -> list[int]:
    """Release: nobody is answered before the step, then everybody who waits, in worker order."""
    if arrival.refused:
        return [arrival.worker]
    s.waiting.add(arrival.worker)
    if not stepping:
        return []
    released = sorted(s.waiting)
    s.waiting.clear()
    return released
