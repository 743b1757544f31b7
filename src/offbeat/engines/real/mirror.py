"""What the server has written down, as the control sees it: it outlives the server."""

from collections.abc import Iterable, Set

from offbeat.core.shares import ENTRIES, Shares
from offbeat.core.trace import APPLIED, LOST, REFUSED, Row
from offbeat.engines.real.messages import Entry, Transaction
from offbeat.engines.running.ledger import ROW_DRAW, ROW_SOURCE, Ledger, Values


class Mirror:
    """The run's record up to the last transaction."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ledger = Ledger()
        self.journal: list[Entry] = []
        """For the watcher, who may clear it when it has written it."""
        self.since: list[Entry] = []
        """The journal since the last checkpoint."""
        self.shares = Shares()
        """Who holds which shares of the data."""
        self.bytes = 0
        self.queued = self.served = 0.0

    def take(self, transactions: Iterable[Transaction]) -> None:
        for t in transactions:
            self.now = max(self.now, t.now)
            for row in t.rows:
                self.ledger.take(row)
            self.ledger.updates += t.steps
            self.journal.extend(t.journal)
            self.since.extend(t.journal)
            for _, what, worker, number in t.journal:
                if what in ENTRIES:
                    self.shares.follow(what, worker, number)
            self.bytes, self.queued, self.served = t.bytes, t.queued, t.served

    def take_announced(self, rows: Iterable[Values], steps: int) -> None:
        """What workers had announced when the server was lost, and it had not read."""
        for row in rows:
            self.ledger.take(row)
        self.ledger.updates += steps

    def lose(self, counters: dict[str, int]) -> None:
        """Everything since the last checkpoint is lost: its rows say so, and counts are these again."""
        rows = self.ledger.rows
        for k, values in enumerate(rows):
            row = Row._make(values)
            if row.outcome in (APPLIED, REFUSED):
                rows[k] = tuple(row._replace(applied=False, outcome=LOST))
        self.ledger.load(counters)

    def forget(self, batches: Set[tuple[int, int]], counters: dict[str, int]) -> int:
        """Drops the rows of batches that are computed again and will have theirs then; how many there were."""
        before = len(self.ledger.rows)
        self.ledger.rows[:] = [row for row in self.ledger.rows if (row[ROW_SOURCE], row[ROW_DRAW]) not in batches]
        self.ledger.load(counters)
        return before - len(self.ledger.rows)

    def batches(self) -> set[tuple[int, int]]:
        """(source, draw) of all that has a row since the last checkpoint."""
        return {(row.source, row.draw) for row in map(Row._make, self.ledger.rows) if row.draw is not None}
