"""What the server has written down, as the control sees it: it outlives the server."""

from collections.abc import Callable, Iterable

from offbeat.core.trace import APPLIED, LOST, REFUSED, Row
from offbeat.engines.real.messages import Entry, Transaction
from offbeat.engines.running.ledger import Ledger, Values


class Mirror:
    """The run's record up to the last transaction."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ledger = Ledger()
        self.journal: list[Entry] = []
        """For the watcher, who may clear it when it has written it."""
        self.since: list[Entry] = []
        """The journal since the last checkpoint."""
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
            self.bytes, self.queued, self.served = t.bytes, t.queued, t.served

    def take_announced(self, rows: Iterable[Values], steps: int) -> None:
        """What workers had announced when the server was lost, and it had not read."""
        for row in rows:
            self.ledger.take(row)
        self.ledger.updates += steps

    def take_back(self, which: Callable[[Row], bool], counters: dict[str, int]) -> int:
        """Turns rows that were applied into lost ones, and goes back to these counts; how many rows there were."""
        rows, taken = self.ledger.rows, 0
        for k, values in enumerate(rows):
            row = Row._make(values)
            if row.outcome in (APPLIED, REFUSED) and which(row):
                rows[k] = tuple(row._replace(applied=False, outcome=LOST))
                taken += row.applied
        self.ledger.load(counters)
        return taken

    def batches(self) -> set[tuple[int, int]]:
        """(source, draw) of all that has a row since the last checkpoint."""
        return {(row.source, row.draw) for row in map(Row._make, self.ledger.rows) if row.draw is not None}
