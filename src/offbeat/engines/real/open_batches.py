"""Which mini-batches were drawn and have no row of the trace yet: every one gets its row, whatever becomes of it."""

from collections.abc import Iterable

from offbeat.core.effects import Gradient
from offbeat.core.feed import Feed
from offbeat.core.trace import RECEIVED
from offbeat.engines.real.board import Board
from offbeat.engines.running.ledger import ROW_DRAW, ROW_OUTCOME, ROW_SOURCE, Ledger, Values


class OpenBatches:
    """Of each worker, the first `_settled[i]` batches have rows; of later ones, those in `_noted`."""

    def __init__(
        self, board: Board, feed: Feed, ledger: Ledger, settled: list[int], noted: Iterable[tuple[int, int]] = ()
    ) -> None:
        self._board, self._feed, self._ledger = board, feed, ledger
        self._settled, self._noted = list(settled), set(noted)

    def state(self) -> tuple[list[int], list[tuple[int, int]]]:
        return list(self._settled), sorted(self._noted)

    def note(self, rows: Iterable[Values]) -> None:
        """These rows were written."""
        own = (row for row in rows if row[ROW_OUTCOME] != RECEIVED and row[ROW_DRAW] is not None)
        self._noted.update((row[ROW_SOURCE], row[ROW_DRAW]) for row in own)

    def settle(
        self, i: int, now: float, version: int | None, outcome: str, held: Iterable[tuple[int, Gradient]] = ()
    ) -> bool:
        """One row for every batch that worker i has drawn and that has none: what it computes, and what it keeps.

        What the server holds will have its row when it is used. True if there was one.
        """
        elsewhere = {(p.source, p.draw) for _, g in held for p in g.parts or (g,)}
        self.note(self._ledger.rows)
        board, found = self._board, False
        for k in range(self._settled[i], int(board.draws[i])):
            batch = self._feed.nth(i, k)
            if batch not in self._noted and batch not in elsewhere:
                found = True
                read = int(board.job_version[i])
                started = float(board.job_started[i])
                self._ledger.unfinished(now, i, batch, None if read < 0 else read, version, started, outcome)
            self._noted.discard(batch)
        self._settled[i] = int(board.draws[i])
        return found

    def trim(self) -> None:
        """Forgets the batches of which it is enough to know the number: those before the first without a row."""
        for i in range(len(self._settled)):
            while (batch := self._feed.nth(i, self._settled[i])) in self._noted:
                self._noted.discard(batch)
                self._settled[i] += 1
