"""The replay engine: a real run computed again, in the order in which things happened to come.

It follows the journal of a run: who began, with which batch; who called the server; who was lost. Everything else - the
gradients, the rule's answers - is computed anew, one after another. Where a server serialises the updates, the final
parameters have the same bits as those of the real run.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from offbeat.core.effects import (
    Applied,
    Call,
    Cancel,
    Grad,
    Gradient,
    Refused,
    Reply,
    ServerEffect,
    SharedAdd,
    SharedRead,
    Stepped,
    View,
)
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.seeds import key64
from offbeat.core.solver import Solver, World
from offbeat.core.sparse import dense
from offbeat.core.task import Point, Task

SERIAL = frozenset({Grad, Call})
"""What the rounds of a method may ask for whose updates a server serialises."""
SHARED = frozenset({Grad, SharedRead, SharedAdd})
"""Of one whose workers add to a shared vector; locks do nothing here, and groups are not followed."""


class Entry(NamedTuple):
    """One line of the journal."""

    time: float
    what: str
    worker: int
    number: int


class _Worker:
    """A worker's rule in progress."""

    def __init__(self, state: Any, buffers: Any) -> None:
        self.state, self.buffers = state, buffers
        self.round: Any = None
        self.answer: Any = None  # what its rule is waiting for, once it has come
        self.ready = True
        self.works: list[int] = []


class Replay:
    """Construct, `follow` a journal, and look at `parameters`."""

    def __init__(self, task: Task, solver: Solver, feed: Feed, world: World, *, seed: int) -> None:
        self.task, self.solver, self.feed, self.world, self.seed = task, solver, feed, world, seed
        self.initial = task.init(seed)
        self.server = solver.init_server(self.initial.x, world)
        self.workers: dict[int, _Worker] = {}
        self.updates = self.samples = self.gradients = 0
        self.refused = 0
        self.skipped = 0
        """Calls of workers that, under this rule, were still waiting."""
        self._buffers: dict[int, Any] = {}

    @property
    def parameters(self) -> Any:
        return dense(self.solver.parameters(self.server, {i: w.state for i, w in self.workers.items()}))

    # -- following a server -------------------------------------------------------------------------------------

    def follow(self, journal: Iterable[Entry]) -> None:
        """The run through the server, call by call."""
        missing = self.solver.asks - SERIAL
        if missing:
            names = ", ".join(sorted(e.__name__ for e in missing))
            raise ConfigError(
                f"{type(self.solver).__name__} cannot be replayed from arrivals at a server: its workers also ask for "
                f"{names}, and no server puts that in order"
            )
        for entry in journal:
            getattr(self, f"_{entry.what}")(entry.worker, entry.number)

    def _begin(self, i: int, draws: int) -> None:
        self._start(i, self.initial.x, draws)

    def _join(self, i: int, draws: int) -> None:
        self._perform(self.solver.on_join(self.server, i))
        self._start(i, None, draws)

    def _start(self, i: int, x0: Any, draws: int) -> None:
        self.feed.draws[i] = draws
        state = self.solver.init_worker(i, x0, self.world)
        self.workers[i] = _Worker(state, self._buffers.get(i, self.initial.buffers))

    def _lost(self, i: int, _: int) -> None:
        self.workers.pop(i, None)
        self._perform(self.solver.on_lost(self.server, i))

    def _work(self, i: int, work: int) -> None:
        self.workers[i].works.append(work)

    def _call(self, i: int, _: int) -> None:
        w = self.workers.get(i)
        if w is None or not w.ready:
            self.skipped += 1
            return
        call = self._until_call(i, w, cancelled=False)
        w.ready = False
        if isinstance(call.payload, Gradient):
            call.payload.work = self.samples
        self._perform(self.solver.on_call(self.server, i, call.payload))

    def _cancelled(self, i: int, _: int) -> None:
        """The worker's gradient was given up: its rule is told so, and stops at its next call."""
        w = self.workers.get(i)
        if w is not None and w.ready:
            self._until_call(i, w, cancelled=True)

    def _until_call(self, i: int, w: _Worker, *, cancelled: bool) -> Call:
        """Lets the worker's rule run until it calls the server, or until its gradient is given up."""
        while True:
            if w.round is None:
                w.round, w.answer = self.solver.round(w.state), None
            try:
                effect = w.round.send(w.answer)
            except StopIteration:
                w.round = None
                continue
            w.answer = None
            if type(effect) is Call:
                return effect
            if type(effect) is Grad:
                if cancelled:
                    self.feed.take(i)
                    return Call()
                w.answer = self._gradient(i, w, effect)
            else:
                self._announce(effect)

    def _perform(self, effects: Iterable[ServerEffect]) -> None:
        replies = []
        for effect in effects:
            if type(effect) is Reply:
                replies.append(effect)
            elif type(effect) is not Cancel:  # whether it came in time is in the journal
                self._announce(effect)
        for reply in replies:
            w = self.workers.get(reply.worker)
            if w is not None:
                w.answer, w.ready = reply.value, True

    # -- following a shared vector ------------------------------------------------------------------------------

    def follow_shared(self, rows: Sequence[tuple[int, int | None]], x: Any) -> Any:
        """The run on a shared vector, update by update: (worker, version that it read; None: the newest).

        Real reads are torn and real additions interleave, component by component; here each is whole. `x` is the
        vector at the start; the one at the end is returned.
        """
        history = [x]
        for i in range(self.world.workers):
            self._start(i, self.initial.x, 0)
        for i, read in rows:
            self._shared_round(self.workers[i], i, read, history)
        return dense(history[-1])

    def _shared_round(self, w: _Worker, i: int, read: int | None, history: list[Any]) -> None:
        round = self.solver.round(w.state)
        answer: Any = None
        while True:
            try:
                effect = round.send(answer)
            except StopIteration:
                return
            answer = None
            if type(effect) is SharedRead:
                version = len(history) - 1 if read is None else min(read, len(history) - 1)
                answer = View(history[version], version)
            elif type(effect) is SharedAdd:
                answer = len(history) - 1
                history.append(history[-1] + effect.delta)
            elif type(effect) is Grad:
                answer = self._gradient(i, w, effect)
            elif type(effect) in (Applied, Stepped):
                self._announce(effect)

    # -- gradients and books ------------------------------------------------------------------------------------

    def _gradient(self, i: int, w: _Worker, effect: Grad) -> Gradient:
        source, draw = self.feed.take(i)
        batch, key = self.feed.indices(source, draw), key64(self.seed, "model", source, draw)
        g = self.task.gradient(Point(effect.at, w.buffers), batch, key)
        g.at, g.version, g.source, g.draw = effect.at, effect.version, source, draw
        g.work = w.works.pop(0) if w.works else self.samples
        w.buffers, g.buffers = g.buffers, None
        self._buffers[i] = w.buffers
        self.gradients += 1
        return g

    def _announce(self, effect: Any) -> None:
        if type(effect) is Stepped:
            self.updates += 1
        elif type(effect) in (Applied, Refused):
            self.samples += effect.gradient.samples
            self.refused += type(effect) is Refused
