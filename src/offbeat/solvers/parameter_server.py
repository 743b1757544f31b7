"""The parameter server: one solver with six slots; each named method is a row of values for them.

    worker:  g = grad(x_read);  push(g), which may keep something for the next time
    server:  on g from worker i, with staleness tau:
             gate     accept it?                         refuse otherwise
             correct  (direction, scale) from g          compensate for staleness
             collect  how many of the held go into a step now?     none: hold on
             opt      x <- opt(x, mean of the held directions), at `scale` times the learning rate
             release  whom to answer now
             view     what they are sent

An empty slot does nothing: push g, accept, take it as it is, step on every gradient, answer the sender, send x.
Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core import trace
from offbeat.core.effects import Applied, Call, Grad, Gradient, Refused, Reply, ServerEffect, Stepped, View
from offbeat.core.errors import ConfigError
from offbeat.core.reduction import weighted_mean
from offbeat.core.solver import Round, Solver, World
from offbeat.core.sparse import Table
from offbeat.core.void import Void
from offbeat.solvers.optimizers import AnyStepper, Factory, start


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
    opt: AnyStepper
    world: World
    live: set[int]
    held: list[Held] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    sent: dict[int, View] = field(default_factory=dict)
    """What each worker was last sent: the snapshot its gradient will be computed on."""
    samples: int = 0
    """The work clock."""
    absent: set[int] = field(default_factory=set)
    """Workers that have asked, and wait for their introduction."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the slots keep for themselves."""


@dataclass(slots=True)
class Worker:
    """A worker's state: what it was last sent (None until it has asked), and what its `push` keeps."""

    view: View | None
    memory: Any = None


STEPPED = Stepped()


class Arrival:
    """A gradient at the server's door."""

    __slots__ = ("gradient", "refused", "tau", "worker")

    def __init__(self, worker: int, gradient: Gradient, tau: int | None) -> None:
        assert tau is not None, "a parameter server's gradients have versions"
        self.worker, self.gradient, self.tau = worker, gradient, tau
        self.refused = False


Push = Callable[[Any, Any], tuple[Any, Any]]
"""(what the worker kept, g) -> (what it keeps, what it pushes)."""
Gate = Callable[[Server, Arrival], bool]
Correct = Callable[[Server, Arrival], tuple[Any, float]]
Collect = Callable[[Server], int]
Release = Callable[[Server, Arrival, bool], Iterable[int]]
Publish = Callable[[Server, int], View]


class ParameterServer(Solver):
    """A row of slots.

    Three stabilisers go with every row. `clip` bounds the norm of a gradient: on the worker (`clip_at="worker"`, which
    bounds a single stale gradient) or of the mean on the server. `introduce` brings workers in gradually: worker i
    starts when `introduce * i / W` epochs are done (Chen et al. 2016 took 3).
    """

    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held)
    clip: float | None = None
    clip_at: str = "worker"
    elementwise: ClassVar[bool] = False
    """Whether it needs more of a gradient than to scale and to add it."""
    introduce: float = 0.0

    def __init__(
        self,
        opt: Factory,
        *,
        gate: Gate | None = None,
        correct: Correct | None = None,
        collect: Collect | None = None,
        release: Release | None = None,
        view: Publish | None = None,
        push: Push | None = None,
    ) -> None:
        self.opt, self.push = opt, push
        self.gate, self.correct, self.collect, self.release, self.view = gate, correct, collect, release, view
        own = type(self)._step is ParameterServer._step and type(self).server_rate is ParameterServer.server_rate
        self._empty = own and (gate, correct, collect, release) == (None,) * 4

    @property
    def answers_at_once(self) -> bool:
        mine = (type(self).on_call, type(self).round) == (ParameterServer.on_call, ParameterServer.round)
        slots = (self.gate, self.collect, self.release, self.push)
        return mine and slots == (None,) * 4 and not self.introduce

    def init_server(self, x0: Any, world: World) -> Server:
        if self.elementwise and isinstance(x0, Table):
            raise ConfigError(
                f"{type(self).__name__} works on single components of whole vectors, and this task's gradients are "
                "row-sparse: take a rule that only scales and adds them, such as asgd"
            )
        s = Server(x0, 0, self.server_optimizer(x0, world), world, set(world.present))
        if self.introduce:
            s.live = {i for i in s.live if self._introduced(s, i)}
        s.sent = {i: View(x0, 0) for i in s.live}
        return s

    def server_optimizer(self, x0: Any, world: World) -> AnyStepper:
        return start(self.opt, x0, world.layout, self.multipliers)

    def server_rate(self, s: Server) -> float:
        """The schedule's factor of the server's learning rate."""
        return self.rate(s.samples)

    def init_worker(self, rank: int, x0: Any, world: World) -> Worker:
        asks = x0 is None or (self.introduce > 0 and rank > 0)
        return Worker(None if asks else View(x0, 0))

    def round(self, w: Worker) -> Round:
        if w.view is None:
            w.view = yield Call()
            return
        g = yield Grad(w.view.x, w.view.version)
        if g is None:  # cancelled
            w.view = None
            return
        value, memory = g.value if self.clip is None else self.bounded(g.value), w.memory
        if self.push is not None:
            memory, value = self.push(memory, value)
        view = yield Call(g if value is g.value else g.carrying(value))
        w.view, w.memory = view, memory

    def bounded(self, value: Any) -> Any:
        """A gradient as it leaves the worker, clipped there if it is to be."""
        return value if self.clip is None or self.clip_at == "server" else clipped(value, self.clip)

    def on_call(self, s: Server, worker: int, payload: Gradient | None) -> Iterable[ServerEffect]:
        g = payload
        if g is None or not self._empty or self.clip is not None or s.absent:
            return self._through_the_slots(s, worker, g)
        # What empty slots come to, without asking them: thousands of simulated nodes do nothing else.
        applied = Applied(worker, g, s.version, s.x)
        s.samples += g.samples
        s.x = s.opt.step(g.value, self.rate(s.samples), s.samples)
        s.version += 1
        return applied, STEPPED, self._send(s, worker)

    def _through_the_slots(self, s: Server, worker: int, g: Gradient | None) -> Iterator[ServerEffect]:
        if g is None:  # a pull: the worker is new, or its gradient was cancelled
            s.absent.add(worker)
            yield from self._admit(s)
            return
        arrival = Arrival(worker, g, trace.staleness(s.version, g.version))
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
        if s.absent:
            yield from self._admit(s)

    def on_lost(self, s: Server, worker: int) -> Iterator[ServerEffect]:
        """A barrier must not wait for the dead: the group re-forms without them."""
        for group in (s.live, s.waiting, s.absent):
            group.discard(worker)
        count = self.collect(s) if self.collect is not None and s.held else 0
        if count:
            yield from self._step(s, count)
            for i in sorted(s.waiting):
                yield self._send(s, i)
            s.waiting.clear()
        yield from self._admit(s)

    def held(self, s: Server) -> list[tuple[int, Gradient]]:
        return [(h.worker, h.gradient) for h in s.held]

    def parameters(self, s: Server, workers: Mapping[int, Any]) -> Any:
        return s.x

    def lr(self, s: Server, work: float) -> float:
        return s.opt.lr * self.rate(work)

    def save_server(self, s: Server) -> Any:
        kept = {name: getattr(s, name) for name in Server.__slots__ if name not in ("opt", "world")}
        return {**kept, "opt": s.opt.state()}

    def load_server(self, saved: Any, x0: Any, world: World) -> Server:
        opt = self.server_optimizer(x0, world)
        opt.load(saved["opt"])
        return Server(**{**saved, "opt": opt, "world": world})

    def _step(self, s: Server, count: int) -> list[ServerEffect]:
        """x <- opt(x, sum_l n_l scale_l d_l / sum_l n_l scale_l) at the mean scale, in worker order."""
        taken, s.held = s.held[:count], s.held[count:]
        announced: list[ServerEffect] = []
        for h in taken:
            s.samples += h.gradient.samples
            announced.append(Applied(h.worker, h.gradient, s.version, s.x))
        if count == 1:
            direction, factor = taken[0].direction, taken[0].scale
        else:
            taken.sort(key=lambda h: h.worker)  # stable: a worker's own gradients stay in order of arrival
            weights = [h.gradient.samples * h.scale for h in taken]
            direction = weighted_mean([h.direction for h in taken], weights)
            equal = all(h.scale == 1.0 for h in taken)
            factor = 1.0 if equal else sum(weights) / sum(h.gradient.samples for h in taken)
        if self.clip is not None and self.clip_at == "server":
            direction = clipped(direction, self.clip)
        s.x = s.opt.step(direction, factor * self.server_rate(s), s.samples)
        s.version += 1
        announced.append(STEPPED)
        return announced

    def _admit(self, s: Server) -> Iterator[ServerEffect]:
        """Lets in who asked and may begin; the first of them, if there is nobody else."""
        for i in sorted(s.absent):
            if self._introduced(s, i) or not s.live:
                s.absent.discard(i)
                s.live.add(i)
                if self.release is wait and any(h.worker == i for h in s.held):
                    s.waiting.add(i)  # it came back while its gradient is at the barrier, and waits with it
                else:
                    yield self._send(s, i)

    def _introduced(self, s: Server, worker: int) -> bool:
        epochs = s.samples / (s.world.samples_per_epoch or 1)
        return epochs >= self.introduce * worker / s.world.workers

    def _send(self, s: Server, worker: int) -> Reply:
        view = View(s.x, s.version) if self.view is None else self.view(s, worker)
        s.sent[worker] = view
        return Reply(worker, view)


def clipped(g: Any, bound: float) -> Any:
    """g, shortened to norm `bound` if it is longer."""
    if isinstance(g, Void):
        return g
    norm = float(g.norm())
    return g * (bound / norm) if norm > bound else g


def everybody(s: Server) -> int:
    """Collect: all that are held, once every live worker has delivered."""
    if len(s.held) < len(s.live):  # no need to look who
        return 0
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
