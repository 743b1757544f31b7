"""Averages of pairs: parameters lie in shared memory whenever the rule does not run, under the worker's lock."""

from collections.abc import Callable
from typing import Any

from offbeat.core.effects import Mix
from offbeat.core.sparse import dense
from offbeat.engines.real.board import Board, Clock
from offbeat.engines.real.locks import ByteLock
from offbeat.engines.real.vectors_for_all import VectorsForAll
from offbeat.engines.running.rounds import Rounds


class Mixing:
    """One worker's part in averages, its own and its peers'."""

    def __init__(
        self, vectors: VectorsForAll, board: Board, rank: int, clock: Clock, rounds: Callable[[], Rounds | None]
    ) -> None:
        self._vectors, self._board, self._rank, self._clock, self._rounds = vectors, board, rank, clock, rounds
        self._lock = ByteLock(vectors.fd, rank)
        self._seen = int(vectors.mixed[rank])
        self._stored: Any = None  # what lies in shared memory, as far as we have put it there
        vectors.placed[rank] = 0

    def around(self, go: Callable[[], Any]) -> Any:
        """Lets the rule run alone, from what peers have made of its parameters; then they lie there for all again."""
        with self._lock:
            self._fetch()
            try:
                return go()
            finally:
                self._store()

    def catch_up(self) -> None:
        """Takes over what peers have made of its parameters."""
        with self._lock:
            self._fetch()

    def _fetch(self) -> None:
        rounds = self._rounds()
        if rounds is not None and self._vectors.mixed[self._rank] != self._seen:
            self._stored = self._vectors.own(self._rank).clone()
            rounds.mixed(self._stored)
            self._seen = int(self._vectors.mixed[self._rank])

    def _store(self) -> None:
        rounds = self._rounds()
        x = None if rounds is None else rounds.state.x
        if x is not None and x is not self._stored:
            self._vectors.own(self._rank).copy_(dense(x))
            self._stored, self._vectors.placed[self._rank] = x, 1

    def mix(self, effect: Mix) -> None:
        vectors, i, j = self._vectors, self._rank, effect.peer
        if i == j:
            return
        begun = self._clock.now()
        with ByteLock(vectors.fd, min(i, j)), ByteLock(vectors.fd, max(i, j)):
            if self._board.alive[j] and vectors.placed[j]:
                mean = (vectors.own(i) + vectors.own(j)) / 2
                for k in (i, j):
                    vectors.own(k).copy_(mean)
                    vectors.mixed[k] += 1
        self._board.communicating[i] += self._clock.now() - begun
