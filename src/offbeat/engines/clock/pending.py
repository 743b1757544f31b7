"""What stands for gradients, rounds and computing where nothing is computed."""

from collections.abc import Generator
from math import inf
from typing import Any

from offbeat.core.effects import Applied, Call, Grad, Gradient
from offbeat.engines.running.rounds import Rounds
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.event_heap import COMPUTED
from offbeat.engines.sim.sim_worker import SimWorker


class Pending(Gradient, eq=False, gc=False):
    """A gradient that needs no computing: it is its own job."""

    delay: float = 0.0
    answer: Any = None
    """What the server said before it, while that is under way."""


class EndlessRounds(Rounds):
    """All rounds as one: that the next one begins where one ends costs nothing here."""

    __slots__ = ("send",)

    def begin(self) -> Any:
        self.send = self._forever().send
        return self.send(None)

    def answer(self, value: Any) -> Any:
        if type(value) is Pending:
            self.gradient = value
        effect = self.send(value)
        if type(effect) is Call or type(effect) is Applied:
            self.gradient = None
        return effect

    def _forever(self) -> Generator[Any, Any, None]:
        while True:
            yield from self._solver.round(self.state)
            self.gradient = None


class IdleComputing(Computing):
    """Nothing is computed: only when it would be ready counts."""

    def from_now(self, i: int, w: SimWorker, effect: Grad) -> None:
        context = self._context
        source, draw = context.feed.take(i)
        g = Pending(
            effect.at, 0.0, context.feed.batch, None, None, None, effect.at, effect.version, source, draw, context.now
        )
        w.job = g  # type: ignore[assignment]  # it is its own job
        if self.cores is not None:
            g.delay, work = self.parts(w)
            self.cores.begin(i, g.delay, work)
            return
        g.delay, due = self.span(i, w)
        if due < inf:
            context.events.push(due, i, COMPUTED, g)

    def computed(self, i: int, job: Any) -> None:
        context = self._context
        w: Any = context.workers[i]
        if w.job is not job:
            return
        w.job, job.computed, job.work = None, context.now, context.ledger.samples
        w.samples += job.samples
        w.charge(job, context.now)
        context.advance(i, w, job)
