"""The server's rule at work: what it is told, what it announces, and whom it answers."""

from collections.abc import Iterable
from typing import Any

from offbeat.core.effects import Cancel, Reply, ServerEffect
from offbeat.core.errors import RuleError
from offbeat.core.solver import Solver
from offbeat.engines.running.ledger import Ledger

Outgoing = list[Reply | Cancel]


class Serving:
    """One server: its state, who is there, and whose call it has not answered yet.

    Each method runs the rule to its end, writes what it announces into the ledger, and gives back what is to be sent: a
    reply must not re-enter a rule half done. Whom the rule leaves without a reply waits: that is all a barrier is.
    """

    def __init__(self, solver: Solver, state: Any, ledger: Ledger, there: Iterable[int]) -> None:
        self.solver, self.state, self.ledger = solver, state, ledger
        self.there = set(there)
        self.waiting: set[int] = set()
        """Workers that have called and were not answered."""

    @property
    def version(self) -> int | None:
        return self.solver.version(self.state)

    def call(self, worker: int, payload: Any, now: float) -> Outgoing:
        """A message of a worker that is there."""
        self.waiting.add(worker)
        return self._perform(self.solver.on_call(self.state, worker, payload), now)

    def join(self, worker: int, now: float) -> Outgoing:
        self.there.add(worker)
        return self._perform(self.solver.on_join(self.state, worker), now)

    def lose(self, worker: int, now: float) -> Outgoing:
        """It was lost, or has finished; the rule must not wait for it."""
        self.there.discard(worker)
        self.waiting.discard(worker)
        return self._perform(self.solver.on_lost(self.state, worker), now)

    def _perform(self, effects: Iterable[ServerEffect], now: float) -> Outgoing:
        outgoing: Outgoing = []
        for effect in effects:
            kind = type(effect)
            if kind is Reply:
                i = effect.worker  # type: ignore[union-attr]
                if i in self.waiting:
                    self.waiting.remove(i)
                elif i in self.there:
                    raise RuleError(
                        f"{type(self.solver).__name__} replied to worker {i}, which waits for no answer: "
                        "one Reply for each call"
                    )
                else:
                    continue  # it is gone
                outgoing.append(effect)  # type: ignore[arg-type]
            elif kind is Cancel:
                outgoing.append(effect)  # type: ignore[arg-type]
            else:
                self.ledger.announce(effect, now)
        return outgoing
