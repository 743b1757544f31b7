"""What the rows of the trace come to: sums in all, and since the last evaluation."""

from collections.abc import Callable, Sequence
from typing import Any

from offbeat.core.trace import APPLIED, REFUSED, Row
from offbeat.engines.protocol import Engine


def ratio(numerator: float, denominator: float) -> float | None:
    """None of nothing."""
    return numerator / denominator if denominator else None


class Tally:
    """Sums over the rows of the trace since some moment."""

    def __init__(self) -> None:
        self.rows = self.applied = self.samples = 0
        self.loss = 0.0
        self.correct = self.classified = 0
        self.norm = 0.0
        self.normed = 0
        self.staleness = self.stale = self.max_staleness = 0

    def add(self, row: Row) -> None:
        self.rows += 1
        if row.applied and row.staleness is not None:
            self.staleness += row.staleness
            self.stale += 1
            self.max_staleness = max(self.max_staleness, row.staleness)
        if row.outcome not in (APPLIED, REFUSED):
            return
        self.samples += row.samples
        self.loss += (row.loss or 0.0) * row.samples
        if row.correct is not None:
            self.correct += row.correct
            self.classified += row.samples
        if row.grad_norm is not None:
            self.norm += row.grad_norm
            self.normed += 1
        if row.applied:
            self.applied += 1

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    def load(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)


class Counted:
    """The rows that an engine has added, counted once each; the engine's list is emptied when they are written."""

    def __init__(self, engine: Engine, on_apply: Sequence[Callable[[Row], object]]) -> None:
        self._engine, self._on_apply = engine, on_apply
        self.total, self.since = Tally(), Tally()
        self._seen = 0  # rows of engine.rows already counted
        self._lost = 0  # updates that went with a server
        self._note_sums()

    def count(self) -> None:
        """Takes note of the rows that the engine has added, or, with a server, lost again."""
        rows, lost = self._engine.rows, self._engine.lost_updates
        if lost != self._lost:
            self._lost, self._seen = lost, 0
            self.total.load(self._sums[0])
            self.since.load(self._sums[1])
        for values in rows[self._seen :]:
            row = Row._make(values)
            self.total.add(row)
            self.since.add(row)
            if row.applied:
                for hook in self._on_apply:
                    hook(row)
        self._seen = len(rows)

    def begin_anew(self) -> None:
        """From here on is since the last evaluation."""
        self.since = Tally()

    def note(self) -> None:
        """Before the rows are written: what to go back to when those after them are lost."""
        self.count()
        self._note_sums()

    def written(self) -> None:
        """The rows and the journal are in a file: the engine need not keep them."""
        self._engine.rows.clear()
        if self._engine.journal is not None:
            self._engine.journal.clear()
        self._seen = 0

    def state(self) -> dict[str, Any]:
        return {"total": self.total.state(), "since": self.since.state()}

    def load(self, saved: dict[str, Any]) -> None:
        self.total.load(saved["total"])
        self.since.load(saved["since"])

    def resumed(self) -> None:
        """The engine has been restored: what it had lost by then is in the sums."""
        self._lost = self._engine.lost_updates
        self._note_sums()

    def _note_sums(self) -> None:
        self._sums = self.total.state(), self.since.state()
