"""What the server writes down, where it outlives the server: rows of the trace, steps, the journal, totals."""

from offbeat.engines.real.checkpoint import Checkpoint
from offbeat.engines.real.messages import Entry, Totals, Transaction
from offbeat.engines.real.open_batches import OpenBatches
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Hub
from offbeat.engines.running.ledger import Ledger


class Record:
    """Collects what happens and commits it, before anybody is answered."""

    def __init__(self, site: Site, hub: Hub, ledger: Ledger, totals: Totals, saved: Checkpoint | None) -> None:
        self._board, self._clock, self._hub, self._ledger = site.board, site.clock, hub, ledger
        settled = site.board.draws.tolist() if saved is None else saved.settled
        self.open = OpenBatches(site.board, site.feed, ledger, settled, () if saved is None else saved.noted)
        self.bytes, self.queued, self.served = totals.bytes, totals.queued, totals.served
        self._journal: list[Entry] = []
        self._committed = ledger.updates
        site.board.announced[:] = 0  # with all that was announced before
        site.board.announced[0] = ledger.samples
        self._share()

    def happened(self, what: str, worker: int, number: int = 0) -> None:
        """One line of the journal, which a replay follows."""
        self._journal.append((self._clock.now(), what, worker, number))

    def listen(self) -> None:
        """Takes over what workers have announced."""
        rows, steps = self._hub.announced()
        for row in rows:
            self._ledger.take(row)
        self._ledger.updates += steps
        self.commit()

    def commit(self) -> None:
        """Writes down what was done since the last time."""
        ledger = self._ledger
        steps = ledger.updates - self._committed
        if ledger.rows or self._journal or steps:
            self.open.note(ledger.rows)
            totals = (self.bytes, self.queued, self.served)
            self._hub.record(Transaction(self._clock.now(), ledger.rows, steps, self._journal, *totals))
            ledger.rows, self._journal, self._committed = [], [], ledger.updates
        self._share()

    def _share(self) -> None:
        self._board.work[0], self._board.updates[0] = self._ledger.samples, self._ledger.updates
