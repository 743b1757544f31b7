"""Workers that are taken away at random, with or without notice, and come back."""

from collections.abc import Callable
from typing import Any

from offbeat.core.seeds import Draws
from offbeat.engines.cluster import Loss
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import BACK, NOTICE, TAKEN

Handler = Callable[[int, Any], None]


class Departures:
    """Each worker that `cluster.loss` names goes and comes in turn, by draws of its own."""

    def __init__(self, context: Context, lose: Handler, join: Handler) -> None:
        self._context, self._lose, self._join = context, lose, join
        self._entries: dict[int, Loss] = {}
        self._there: dict[int, Draws] = {}  # how long it stays ...
        self._away: dict[int, Draws] = {}  # ... and how long it is gone
        for entry in context.cluster.loss:
            for i in range(context.cluster.workers) if entry.workers is None else entry.workers:
                self._entries[i] = entry
                where: dict[str, Any] = {"seed": context.seed, "source": i, "dial": context.dial}
                self._there[i] = Draws(entry.every.sample, stream="lost", **where)
                if entry.back is not None:
                    self._away[i] = Draws(entry.back.sample, stream="back", **where)

    def prepare(self) -> None:
        for i in sorted(self._entries):
            self._await_loss(i)

    def _await_loss(self, i: int) -> None:
        now = self._context.now
        lost = now + self._there[i].next()
        told = max(now, lost - self._entries[i].notice)
        self._context.events.push(told, i, NOTICE, lost)

    def noticed(self, i: int, lost: float) -> None:
        """Worker i will be lost; unless it has left already, or too few would remain."""
        context = self._context
        if not context.workers[i].alive:
            return
        staying = context.living - sum(context.workers[j].alive for j in context.leaving)
        if staying - 1 < self._entries[i].floor:
            self._await_loss(i)
        elif lost > context.now:
            context.leaving.add(i)
            context.events.push(lost, i, TAKEN, None)
        else:
            self.taken(i, None)

    def taken(self, i: int, _: Any) -> None:
        context = self._context
        context.leaving.discard(i)
        self._lose(i, None)  # if it is still there
        if i in self._away:
            context.events.push(context.now + self._away[i].next(), i, BACK, None)

    def back(self, i: int, _: Any) -> None:
        self._await_loss(i)
        self._join(i, None)

    def saved(self) -> dict[str, Any]:
        positions = [{i: draws.position for i, draws in kind.items()} for kind in (self._there, self._away)]
        return {"leaving": self._context.leaving, "positions": positions}

    def load(self, saved: dict[str, Any]) -> None:
        self._context.leaving = saved["leaving"]
        for kind, positions in zip((self._there, self._away), saved["positions"], strict=True):
            for i, position in positions.items():
                kind[i].position = position
