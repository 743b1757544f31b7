"""The parameter server: a solver that is told by six functions what a method does with a gradient.

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

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, cast, final

from offbeat.core import trace
from offbeat.core.effects import Applied, Call, Grad, Gradient, Push, Refused, Reply, ServerEffect, Stepped, View
from offbeat.core.errors import ConfigError
from offbeat.core.reduction import weighted_mean
from offbeat.core.solver import Round, Shown, World
from offbeat.core.sparse import RowTable
from offbeat.optim.clipping import clipped
from offbeat.optim.steppers import AnyStepper, Factory, start, whole_only
from offbeat.solvers.parameter_server.overlap import MayOverlap
from offbeat.solvers.parameter_server.slots import Arrival, Collect, Correct, Gate, Publish, Pushed, Release
from offbeat.solvers.parameter_server.state import Held, S, Server, W, Worker, load, save

STEPPED = Stepped()


class ParameterServer(MayOverlap, Generic[S, W]):
    """A server with slots; by itself, with all of them empty, it is asynchronous SGD.

    Typed by the states of server and workers: `ParameterServer[Server, Worker]` for a method that keeps nothing of its
    own. One that does names its records in `server_state` and `worker_state`, and all of them in `records`.

    Args:
        opt: makes the server's optimizer, such as `functools.partial(torch.optim.SGD, lr=0.1)`.
        gate: (server, arrival) -> whether the gradient is used. Default: every one is.
        correct: (server, arrival) -> (direction, factor of the learning rate). Default: the gradient, 1.
        collect: (server) -> how many of the held gradients go into a step now. Default: each as it arrives.
        release: (server, arrival, whether there was a step) -> the workers to answer. Default: the sender.
        view: (server, worker) -> what the worker is sent. Default: x and its version.
        push: (worker, g) -> what the worker pushes. Default: g.

    Four options go with every method; they are attributes, and `solver.KEY` reaches them from outside:

    Args:
        clip: bound of a gradient's norm. Default: none.
        clip_at: "worker" (a single, perhaps stale gradient) or "server" (the mean of a step). Default: "worker".
        introduce: E, in epochs: worker i begins when E i / W epochs are done (Chen et al. 2016 took 3). Default: 0.
        overlap: whether a worker computes while its message is under way; refused by methods that need the answer
            first, with the reason. Default: false.
    """

    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held)
    server_state: ClassVar[type[Server]] = Server
    """The class of the server's state; its fields beyond those of `Server` have defaults."""
    worker_state: ClassVar[type[Worker]] = Worker
    """The class of a worker's state; its fields beyond those of `Worker` have defaults."""
    elementwise: ClassVar[bool] = False
    """Whether it needs more of a gradient than to scale and to add it."""
    waits_for_step: ClassVar[bool] = False
    """Whether a sender is not answered before its gradient was used: one that comes back meanwhile waits, too."""
    at_once: bool = False
    """Declared by a method that uses every gradient on arrival and answers its sender, and no other, at once."""
    clip: float | None = None
    clip_at: str = "worker"
    introduce: float = 0.0

    def __init__(
        self,
        opt: Factory,
        *,
        gate: Gate[S] | None = None,
        correct: Correct[S] | None = None,
        collect: Collect[S] | None = None,
        release: Release[S] | None = None,
        view: Publish[S] | None = None,
        push: Pushed[W] | None = None,
    ) -> None:
        self.opt, self.push = opt, push
        self.gate, self.correct, self.collect, self.release, self.view = gate, correct, collect, release, view
        self._slots_are_empty = gate is None and correct is None and collect is None and release is None

    @property
    def answers_at_once(self) -> bool:
        return self.at_once and not self.introduce and not self.overlap

    def why_whole(self) -> str | None:
        if self.clip is not None and self.clip_at == "server":
            return "clipping at the server needs the norm of the whole vector (solver.clip_at='worker' does not)"
        return self.needs_whole or self.why_whole_optimizer()

    def why_whole_optimizer(self) -> str | None:
        """The same, because of the server's optimizer."""
        return whole_only(self.opt, self.multipliers)

    def init_worker(self, rank: int, x0: Any, world: World) -> W:
        asks = x0 is None or (self.introduce > 0 and rank > 0)
        return cast(W, self.worker_state(None if asks else View(x0, 0)))

    def round(self, w: W) -> Round:
        if w.view is None:
            w.view = yield Call()
            return
        if Push in self.asks:
            yield from self.overlapping_round(w, w.view)
            return
        g = yield Grad(w.view.x, w.view.version)
        if g is None:  # cancelled
            w.view = None
            return
        w.view = yield Call(g if self.clip is None and self.push is None else self.pushed(w, g))

    def pushed(self, w: W, g: Gradient) -> Gradient:
        """A gradient as a worker sends it: clipped there if it is to be, and what the slot makes of it."""
        value = g.value if self.clip is None else self.bounded(g.value)
        if self.push is not None:
            value = self.push(w, value)
        return g if value is g.value else g.carrying(value)

    def bounded(self, value: Any) -> Any:
        """A gradient as it leaves the worker, clipped there if it is to be."""
        return value if self.clip_at == "server" else clipped(value, self.clip)

    def init_server(self, x0: Any, world: World) -> S:
        if self.elementwise and isinstance(x0, RowTable):
            raise ConfigError(
                f"{type(self).__name__} works on single components of whole vectors, and this task's gradients are "
                "row-sparse: take a rule that only scales and adds them, such as asgd"
            )
        s = cast(S, self.server_state(x0, 0, self.server_optimizer(x0, world), world, set(world.present)))
        if self.introduce:
            s.live = {i for i in s.live if self.introduced(s, i)}
        s.sent = {i: View(x0, 0) for i in s.live}
        return s

    def server_optimizer(self, x0: Any, world: World) -> AnyStepper:
        return start(self.opt, x0, world.layout, self.multipliers)

    def server_rate(self, s: S) -> float:
        """The schedule's factor of the server's learning rate; 1 where there is no schedule."""
        return self.rate(s.samples)

    def on_call(self, s: S, worker: int, payload: Any) -> Iterable[ServerEffect]:
        """A gradient; or None, a pull: the worker is new, or its gradient was cancelled."""
        if payload is None:
            s.absent.add(worker)
            return self.admit(s)
        if self._slots_are_empty and self.clip is None and not s.absent:
            return self._past_the_slots(s, worker, payload)
        return self._through_the_slots(s, worker, payload)

    def _through_the_slots(self, s: S, worker: int, g: Gradient) -> Iterator[ServerEffect]:
        arrival = Arrival(worker, g, trace.staleness(s.version, g.version))
        stepping = yield from self.use(s, arrival)
        for i in (worker,) if self.release is None else self.release(s, arrival, stepping):
            yield self.send(s, i)
        yield from self.admit(s)

    def _past_the_slots(self, s: S, worker: int, g: Gradient) -> tuple[Applied, Stepped, Reply]:
        """What the above comes to where the slots are empty, in half the time: simulated nodes do nothing else."""
        applied = Applied(worker, g, s.version, s.x)
        s.samples += g.samples
        s.x = s.opt.step(g.value, 1.0 if self.schedule is None else self.server_rate(s), s.samples)
        s.version += 1
        if self.view is not None:
            return applied, STEPPED, self.send(s, worker)
        view = s.sent[worker] = View(s.x, s.version)
        return applied, STEPPED, Reply(worker, view)

    @final
    def use(self, s: S, arrival: Arrival) -> Generator[ServerEffect, None, bool]:
        """Gate, correct, collect and perhaps a step; whether there was one."""
        worker, g = arrival.worker, arrival.gradient
        if self.gate is not None and not self.gate(s, arrival):
            arrival.refused = True
            s.samples += g.samples
            yield Refused(worker, g, s.version)
            return False
        direction, scale = (g.value, 1.0) if self.correct is None else self.correct(s, arrival)
        s.held.append(Held(worker, g, direction, scale))
        count = 1 if self.collect is None else self.collect(s)
        if count:
            yield from self.step(s, count)
        return count > 0

    @final
    def step(self, s: S, count: int) -> list[ServerEffect]:
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
        if self.clip_at == "server":
            direction = clipped(direction, self.clip)
        s.x = s.opt.step(direction, factor * self.server_rate(s), s.samples)
        s.version += 1
        announced.append(STEPPED)
        return announced

    def send(self, s: S, worker: int) -> Reply:
        view = View(s.x, s.version) if self.view is None else self.view(s, worker)
        s.sent[worker] = view
        return Reply(worker, view)

    def admit(self, s: S) -> Iterator[ServerEffect]:
        """Lets in who asked and may begin; the first of them, if there is nobody else."""
        for i in sorted(s.absent):
            if self.introduced(s, i) or not s.live:
                s.absent.discard(i)
                s.live.add(i)
                if self.waits_for_step and any(h.worker == i for h in s.held):
                    s.waiting.add(i)  # it came back while its gradient is at the barrier, and waits with it
                else:
                    yield self.send(s, i)

    def introduced(self, s: S, worker: int) -> bool:
        """Whether this worker may begin."""
        epochs = s.samples / (s.world.samples_per_epoch or 1)
        return epochs >= self.introduce * worker / s.world.workers

    def on_lost(self, s: S, worker: int) -> Iterator[ServerEffect]:
        """A barrier must not wait for the dead: the group re-forms without them."""
        for group in (s.live, s.waiting, s.absent):
            group.discard(worker)
        count = self.collect(s) if self.collect is not None and s.held else 0
        if count:
            yield from self.step(s, count)
            for i in sorted(s.waiting):
                yield self.send(s, i)
            s.waiting.clear()
        yield from self.admit(s)

    def held(self, s: S) -> list[tuple[int, Gradient]]:
        return [(h.worker, h.gradient) for h in s.held]

    def version(self, s: S) -> int:
        return s.version

    def optimizer_options(self, s: S) -> Mapping[str, Any] | None:
        return s.opt.options

    def parameters(self, s: S, workers: Mapping[int, Shown]) -> Any:
        return s.x

    def lr(self, s: S, work: float) -> float:
        return s.opt.lr * self.rate(work)

    def save_server(self, s: S) -> dict[str, Any]:
        return save(s)

    def load_server(self, saved: Mapping[str, Any], x0: Any, world: World) -> S:
        return cast(S, load(self.server_state, saved, self.server_optimizer(x0, world), world))
