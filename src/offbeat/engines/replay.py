"""The replay engine: a real run computed again, in the order in which things happened to come.

It follows the journal of a run: who began, with which batch; who called the server; who was lost. Everything else - the
gradients, the rule's answers - is computed anew, one after another. Where a server serialises the updates, the final
parameters have the same bits as those of the real run.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from offbeat.core.codec import Codec
from offbeat.core.effects import Await, Call, Cancel, Grad, Gradient, Lock, Push, SharedAdd, SharedRead, Unlock, View
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.shares import ENTRIES
from offbeat.core.solver import Solver, World
from offbeat.core.sparse import dense
from offbeat.core.task import Buffers, Task
from offbeat.core.trace import REFUSED
from offbeat.engines.running.fit import lacking
from offbeat.engines.running.gradients import compute, stamp
from offbeat.engines.running.ledger import ROW_OUTCOME, Ledger
from offbeat.engines.running.rounds import Rounds
from offbeat.engines.running.serving import Outgoing, Serving

SERIAL = frozenset({Grad, Call, Push, Await})
"""What the rounds of a method may ask for whose updates a server serialises."""
SHARED = frozenset({Grad, SharedRead, SharedAdd})
"""Of one whose workers add to a shared vector; locks do nothing here, and groups are not followed."""


class Entry(NamedTuple):
    """One line of the journal."""

    time: float
    what: str
    worker: int
    number: int


class ReplayedWorker:
    """A worker's rule in progress."""

    def __init__(self, rounds: Rounds, buffers: Buffers) -> None:
        self.rounds, self.buffers = rounds, buffers
        self.unseen: Any = None  # what its rule has asked for and nobody has seen to
        self.answer: Any = None  # what its rule waits for, once it has come
        self.ready = True
        self.works: list[int] = []  # the work clock of its next gradients, where the journal tells
        self.unsent: Push | None = None  # a push that its rule is past, and the server has not heard yet
        self.known_works = 0  # how many entries of the journal are of gradients that its rule was given before
        self.kept_works: list[int] = []  # those that go with its next call ...
        self.later_works: list[int] = []  # ... and with the one after it

    def ask(self) -> Any:
        """What its rule asks for next, told what has come."""
        if self.unseen is not None:
            effect, self.unseen = self.unseen, None
            return effect
        if self.rounds.pending is None:
            return self.rounds.begin()
        if type(self.rounds.pending) is Push:  # its answer is for later
            return self.rounds.answer(None)
        answer, self.answer = self.answer, None
        return self.rounds.answer(answer)

    def catch_up(self) -> None:
        """Its rule is told what has come, so that nothing is under way any more."""
        if self.unseen is None and self.ready:
            self.unseen = self.ask()


class Replay:
    """Construct, `follow` a journal, and look at `parameters`."""

    def __init__(self, task: Task, solver: Solver, feed: Feed, world: World, *, seed: int) -> None:
        self.task, self.solver, self.feed, self.world, self.seed = task, solver, feed, world, seed
        self.initial = task.init(seed)
        self.ledger, self.codec = Ledger(), Codec(solver.records)
        self.serving = Serving(solver, solver.init_server(self.initial.x, world), self.ledger, ())
        self.workers: dict[int, ReplayedWorker] = {}
        self.gradients = 0
        self.skipped = 0
        """Calls of workers that, under this rule, were still waiting."""
        self._buffers: dict[int, Any] = {}
        self.samples_of = [0] * world.workers
        """Samples of the gradients that each worker's rule was given, in all its lives."""

    @property
    def parameters(self) -> Any:
        found = {i: self.solver.shown(w.rounds.state) for i, w in self.workers.items()}
        shown = {i: x for i, x in found.items() if x is not None}
        return dense(self.solver.parameters(self.serving.state, shown))

    @property
    def updates(self) -> int:
        return self.ledger.updates

    @property
    def refused(self) -> int:
        return sum(row[ROW_OUTCOME] == REFUSED for row in self.ledger.rows)

    # -- following a server -------------------------------------------------------------------------------------

    def follow(self, journal: Iterable[Entry]) -> None:
        """The run through the server, call by call."""
        if lacking(SERIAL, self.solver) is not None:
            names = ", ".join(sorted(e.__name__ for e in self.solver.asks - SERIAL))
            raise ConfigError(
                f"{type(self.solver).__name__} cannot be replayed from arrivals at a server: its workers also ask for "
                f"{names}, and no server puts that in order"
            )
        for entry in journal:
            if entry.what in ENTRIES:
                self.feed.shares.follow(entry.what, entry.worker, entry.number)
                continue
            getattr(self, f"_{entry.what}")(entry.worker, entry.number)

    def _begin(self, i: int, draws: int) -> None:
        self.serving.there.add(i)
        self._start(i, self.initial.x, draws)

    def _join(self, i: int, draws: int) -> None:
        self._hand_out(self.serving.join(i, 0.0))
        self._start(i, None, draws)

    def _start(self, i: int, x0: Any, draws: int) -> None:
        self.feed.draws[i] = draws
        rounds = Rounds(self.solver, self.solver.init_worker(i, x0, self.world), self.codec)
        self.workers[i] = ReplayedWorker(rounds, self._buffers.get(i, self.initial.buffers))

    def _lost(self, i: int, _: int) -> None:
        self.workers.pop(i, None)
        self._hand_out(self.serving.lose(i, 0.0))

    def _work(self, i: int, work: int) -> None:
        w = self.workers[i]
        if w.known_works:
            w.known_works -= 1
        else:
            w.works.append(work)

    def _call(self, i: int, _: int) -> None:
        w = self.workers.get(i)
        if w is None or not w.ready:
            self.skipped += 1
            return
        call = self._until_call(i, w, cancelled=False) if w.unsent is None else w.unsent
        w.ready, w.unsent = False, None
        w.known_works, w.kept_works, w.later_works = len(w.later_works), w.later_works, []
        if isinstance(call.payload, Gradient):
            call.payload.work = self.ledger.samples
        self._hand_out(self.serving.call(i, call.payload, 0.0))

    def _cancelled(self, i: int, _: int) -> None:
        """The worker's gradient was given up: its rule is told so, and stops at its next call."""
        w = self.workers.get(i)
        if w is not None and w.ready:
            self._until_call(i, w, cancelled=True)

    def _until_call(self, i: int, w: ReplayedWorker, *, cancelled: bool) -> Call | Push:
        """Lets the worker's rule run until it calls the server, or until its gradient is given up."""
        while True:
            effect = w.ask()
            if type(effect) is Call or type(effect) is Push:
                return effect
            if type(effect) is Await:
                if w.rounds.early is not None:
                    w.answer = w.rounds.early[0]
            elif type(effect) is Grad:
                if cancelled:  # it was computed all the same, and its statistics stay
                    self._gradient(i, w, effect, given=False)
                    return Call()
                w.answer = self._gradient(i, w, effect)
            else:
                self.ledger.announce(effect, 0.0)

    def _hand_out(self, outgoing: Outgoing) -> None:
        for message in outgoing:
            w = self.workers.get(message.worker)
            if w is not None and type(message) is not Cancel:  # whether that came in time is in the journal
                value, w.ready = message.value, True  # type: ignore[union-attr]
                if not w.rounds.answered_early(value):
                    w.answer = value

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
            self._shared_update(self.workers[i], i, read, history)
        return dense(history[-1])

    def _shared_update(self, w: ReplayedWorker, i: int, read: int | None, history: list[Any]) -> None:
        """Lets the worker's rule run until it has announced one more update."""
        before = self.ledger.updates
        while self.ledger.updates == before:
            effect = w.ask()
            if type(effect) is SharedRead:
                version = len(history) - 1 if read is None else min(read, len(history) - 1)
                w.answer = View(history[version], version)
            elif type(effect) is SharedAdd:
                w.answer = len(history) - 1
                history.append(history[-1] + effect.delta)
            elif type(effect) is Grad:
                w.answer = self._gradient(i, w, effect)
            elif type(effect) not in (Lock, Unlock):
                self.ledger.announce(effect, 0.0)

    # -- gradients ----------------------------------------------------------------------------------------------

    def _gradient(self, i: int, w: ReplayedWorker, effect: Grad, *, given: bool = True) -> Gradient:
        source, draw = self.feed.take(i)
        g = compute(self.task, self.feed, self.seed, effect.at, w.buffers, source, draw)
        work = w.works.pop(0) if w.works else self.ledger.samples
        self._buffers[i] = w.buffers = stamp(g, effect.at, effect.version, source, draw, work=work)
        self.samples_of[i] += g.samples if given else 0
        self.gradients += 1
        return g
