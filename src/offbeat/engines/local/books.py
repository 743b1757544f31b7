"""The record that the server process keeps: rows of the trace, counts, and the order in which things happened."""

from typing import Any

from offbeat.core.effects import Applied, Gradient, Refused, Stepped
from offbeat.core.trace import APPLIED, REFUSED, staleness
from offbeat.engines.local.setup import Site

COUNTERS = ("updates", "samples", "samples_applied", "bytes", "queued", "served")


class Books:
    """Rows as in the simulator. The journal is what a replay follows: (time, what, worker, number)."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.rows: list[tuple[Any, ...]] = []
        self.journal: list[tuple[float, str, int, int]] = []
        self.updates = self.samples = self.samples_applied = self.bytes = 0
        self.queued = self.served = 0.0

    def counters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COUNTERS}

    def load(self, saved: dict[str, Any]) -> None:
        for name in COUNTERS:
            setattr(self, name, saved[name])
        self._share()

    def happened(self, what: str, worker: int, number: int = 0) -> None:
        self.journal.append((self._site.clock.now(), what, worker, number))

    def announce(self, effect: Any) -> None:
        kind = type(effect)
        if kind is Applied:
            gap = None
            if self._site.options.gap and effect.x is not None:
                gap = float((effect.x - effect.gradient.at).norm())
            self.note(effect.worker, effect.gradient, effect.version, APPLIED, gap)
        elif kind is Stepped:
            self.stepped()
        elif kind is Refused:
            self.note(effect.worker, effect.gradient, effect.version, REFUSED, None)
        else:
            raise TypeError(f"a rule yielded {effect!r}, which is no effect that belongs there")

    def stepped(self) -> None:
        self.updates += 1
        self._site.arena.updates[0] = self.updates

    def note(self, i: int, g: Gradient, version: int | None, outcome: str, gap: float | None) -> None:
        for part in g.parts:
            self.note(i, part, version, outcome, gap)
        if g.parts:
            return
        values = (i, g.source, g.draw, g.version, version, gap, g.loss, g.samples)
        self.row(self._site.clock.now(), *values, g.started, g.computed, g.norm, g.correct, outcome=outcome)

    def row(
        self,
        time: float,
        worker: int,
        source: int,
        draw: int,
        read: int | None,
        version: int | None,
        gap: float | None,
        loss: float | None,
        samples: int,
        started: float,
        computed: float,
        norm: float | None,
        correct: int | None,
        *,
        outcome: str,
    ) -> None:
        age, used = staleness(version, read), outcome == APPLIED
        begin = (time, worker, source, draw, read, version, age, gap, used, outcome)
        self.rows.append((*begin, loss, samples, started, computed, norm, correct))
        if used or outcome == REFUSED:
            self.samples += samples
            self.samples_applied += samples if used else 0
            self._share()

    def unfinished(self, i: int, version: int | None, outcome: str) -> None:
        """One row for the gradient that worker i was computing."""
        arena, now = self._site.arena, self._site.clock.now()
        read = int(arena.job_version[i])
        values = (i, int(arena.job_source[i]), int(arena.job_draw[i]), None if read < 0 else read, version)
        self.row(now, *values, None, None, 0, float(arena.job_started[i]), now, None, None, outcome=outcome)

    def snapshot(self, i: int, read: int, version: int | None, outcome: str) -> None:
        """One row for parameters that were sent and not yet used."""
        now = self._site.clock.now()
        begin = (now, i, i, None, read, version, staleness(version, read), None, False, outcome)
        self.rows.append((*begin, None, 0, now, now, None, None))

    def _share(self) -> None:
        arena = self._site.arena
        arena.work[0], arena.updates[0] = self.samples, self.updates
