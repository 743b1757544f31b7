"""What a worker can do where it shares memory with all others: a shared vector, and averages of pairs."""

from collections.abc import Callable
from typing import Any

from offbeat.core.effects import Lock, Mix, SharedAdd, SharedRead, Unlock
from offbeat.core.solver import Solver
from offbeat.engines.real.mixing import Mixing
from offbeat.engines.real.shared_vector import SharedVector
from offbeat.engines.real.site import Site
from offbeat.engines.real.vectors_for_all import VectorsForAll
from offbeat.engines.running.rounds import Rounds

IN_PLACE: frozenset[type] = frozenset({SharedRead, SharedAdd, Lock, Unlock, Mix})
"""The effects that need memory which all workers share."""


def needs_one_machine(solver: Solver | type[Solver]) -> bool:
    return bool(solver.asks & IN_PLACE)


class InPlace:
    """One worker's part in it. Nothing to do for a rule that asks for nothing of the kind."""

    def __init__(self, site: Site, vectors: VectorsForAll, rank: int, rounds: Callable[[], Rounds | None]) -> None:
        vector = SharedVector(site, vectors, rank)
        self.handlers: dict[type, Callable[[Any], Any]] = {
            SharedRead: vector.read,
            SharedAdd: vector.add,
            Lock: vector.lock,
            Unlock: vector.unlock,
        }
        self._mixing: Mixing | None = None
        if Mix in site.solver.asks:
            self._mixing = Mixing(vectors, site.board, rank, site.clock, rounds)
            self.handlers[Mix] = self._mixing.mix

    def around(self, go: Callable[[], Any]) -> Any:
        return go() if self._mixing is None else self._mixing.around(go)

    def catch_up(self) -> None:
        if self._mixing is not None:
            self._mixing.catch_up()
