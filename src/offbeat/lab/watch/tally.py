"""What the rows of the trace come to: sums in all, and since the last evaluation."""

from collections.abc import Callable, Sequence
from math import inf
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
        self._revision = 0  # of engine.rows
        self._evaluated = -inf  # when, by the engine's clock
        self._shown: set[tuple[int | None, ...]] = set()  # to hooks, of engine.rows
        self._sums = self.total.state(), self.since.state()  # up to the last checkpoint

    def count(self) -> None:
        """Takes note of the rows that the engine has added; of all, if with a server some were taken away."""
        rows = self._engine.rows
        anew = self._engine.revisions != self._revision
        if anew:
            self._revision, self._seen = self._engine.revisions, 0
            self.total.load(self._sums[0])
            self.since.load(self._sums[1])
        for values in rows[self._seen :]:
            row = Row._make(values)
            self.total.add(row)
            if not anew or row.time > self._evaluated:
                self.since.add(row)
            if row.applied and self._on_apply:
                self._show(row)
        self._seen = len(rows)

    def _show(self, row: Row) -> None:
        """To whoever wants to know, once: a step that is made again is the same step."""
        step = (row.worker, row.source, row.draw, row.version_applied)
        if step not in self._shown:
            self._shown.add(step)
            for hook in self._on_apply:
                hook(row)

    def begin_anew(self) -> None:
        """From here on is since the last evaluation."""
        self.since = Tally()
        self._evaluated = self._engine.now
        self._sums = self._sums[0], Tally().state()

    def note(self) -> None:
        """Before the rows are written: what to go back to when those after them are lost."""
        self.count()
        self._note()

    def written(self) -> None:
        """The rows and the journal are in a file: the engine need not keep them."""
        self._engine.rows.clear()
        if self._engine.journal is not None:
            self._engine.journal.clear()
        self._seen = 0
        self._shown.clear()

    def state(self) -> dict[str, Any]:
        return {"total": self.total.state(), "since": self.since.state()}

    def load(self, saved: dict[str, Any]) -> None:
        self.total.load(saved["total"])
        self.since.load(saved["since"])

    def resumed(self) -> None:
        """The engine has been restored: what it had done by then is in the sums."""
        self._note()

    def _note(self) -> None:
        self._sums = self.total.state(), self.since.state()
