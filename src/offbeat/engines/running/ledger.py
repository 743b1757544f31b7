"""The ledger: what an announcement means. Rows of the trace and the counts that follow from them, for every engine."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from offbeat.core.effects import Applied, Gradient, Received, Refused, Stepped
from offbeat.core.errors import RuleError
from offbeat.core.trace import APPLIED, RECEIVED, REFUSED, staleness

Values = tuple[Any, ...]
"""A row of the trace, in the order of `core.trace.Row`: a plain tuple, because a million of them must be cheap."""

ROW_SOURCE, ROW_DRAW, ROW_OUTCOME, ROW_SAMPLES = 2, 3, 9, 11  # where a row has them


class Ledger:
    """What became of every gradient, and how much was done.

    A rule's announcement becomes rows (`announce`); a row is taken up and counted (`take`), wherever it was made: a
    worker process keeps a ledger of its own and hands its rows over to the server's.
    """

    def __init__(self, *, gap: bool = False) -> None:
        self._gap = gap
        self.rows: list[Values] = []
        self.updates = 0
        self.samples = 0
        """Processed by everybody, applied or refused: the work clock."""
        self.samples_applied = 0
        self.on_applied: Callable[[Applied], None] | None = None
        """Shown every gradient before its update."""

    # -- what rules announce ------------------------------------------------------------------------------------

    def announce(self, effect: Any, now: float) -> None:
        """The meaning of `Applied`, `Stepped`, `Refused` and `Received`; anything else is a mistake of the rule."""
        kind = type(effect)
        if kind is Applied:
            gap = distance(effect.x, effect.gradient.at) if self._gap and effect.x is not None else None
            self.note(now, effect.worker, effect.gradient, effect.version, APPLIED, gap, effect.staleness)
            if self.on_applied is not None:
                self.on_applied(effect)
        elif kind is Stepped:
            self.updates += 1
        elif kind is Refused:
            self.note(now, effect.worker, effect.gradient, effect.version, REFUSED)
        elif kind is Received:
            self._received(now, effect.worker, effect.gradient, effect.staleness)
        else:
            raise RuleError(f"a rule yielded {effect!r}, which is no effect that belongs there")

    def note(
        self,
        now: float,
        worker: int,
        g: Gradient,
        version: int | None,
        outcome: str,
        gap: float | None = None,
        tau: int | None = None,
    ) -> None:
        """One row for a gradient that was computed, or for each of those it is made of."""
        if g.parts:
            for part in g.parts:
                self.note(now, worker, part, version, outcome, gap, tau)
            return
        used = outcome == APPLIED
        self.rows.append(
            (
                now,
                worker,
                g.source,
                g.draw,
                g.version,
                version,
                staleness(version, g.version) if tau is None else tau,
                gap,
                used,
                outcome,
                g.loss,
                g.samples,
                g.started,
                g.computed,
                g.norm,
                g.correct,
            )
        )
        if used:
            self.samples_applied += g.samples
            self.samples += g.samples
        elif outcome == REFUSED:
            self.samples += g.samples

    def _received(self, now: float, worker: int, g: Gradient, tau: int | None) -> None:
        """A peer's gradient, applied here too: the worker spent no time on it, and its samples count once."""
        seen = (None, None, tau, None, True, RECEIVED, g.loss, 0, now, now, g.norm, None)
        self.rows.append((now, worker, g.source, g.draw, *seen))

    # -- what was not finished ----------------------------------------------------------------------------------

    def unfinished(
        self,
        now: float,
        worker: int,
        batch: tuple[int, int],
        read: int | None,
        version: int | None,
        started: float,
        outcome: str,
    ) -> None:
        """One row for a gradient that was begun: of a mini-batch (source, draw), at the version that was read."""
        ends = (None, False, outcome, None, 0, started, now, None, None)
        self.rows.append((now, worker, *batch, read, version, staleness(version, read), *ends))

    def snapshot(self, now: float, worker: int, read: int, version: int | None, outcome: str) -> None:
        """One row for parameters that were sent and not yet used: they have no batch, and count as being read."""
        ends = (None, False, outcome, None, 0, now, now, None, None)
        self.rows.append((now, worker, worker, None, read, version, staleness(version, read), *ends))

    # -- rows made elsewhere ------------------------------------------------------------------------------------

    def take(self, row: Values) -> None:
        """A row from another ledger, counted as if it had been announced here."""
        self.rows.append(row)
        outcome = row[ROW_OUTCOME]
        if outcome == APPLIED:
            self.samples_applied += row[ROW_SAMPLES]
            self.samples += row[ROW_SAMPLES]
        elif outcome == REFUSED:
            self.samples += row[ROW_SAMPLES]

    def counters(self) -> dict[str, int]:
        return {"updates": self.updates, "samples": self.samples, "samples_applied": self.samples_applied}

    def load(self, counters: dict[str, int]) -> None:
        self.updates, self.samples = counters["updates"], counters["samples"]
        self.samples_applied = counters["samples_applied"]


def distance(x: Any, y: Any) -> float:
    """|x - y|: the gap. Without the detour of `Tensor.norm`, which costs as much as the norm."""
    if x is y:
        return 0.0
    d = x - y
    return torch.linalg.vector_norm(d).item() if isinstance(d, Tensor) else float(d.norm())
