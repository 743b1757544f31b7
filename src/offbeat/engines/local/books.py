"""The record that the server process keeps: rows of the trace, counts, and the order in which things happened."""

from typing import Any

from torch import Tensor
from torch.linalg import vector_norm

from offbeat.core.effects import Applied, Gradient, Refused, Stepped
from offbeat.core.trace import APPLIED, RECEIVED, REFUSED, staleness
from offbeat.engines.local import ring
from offbeat.engines.local.setup import Site

COUNTERS = ("updates", "samples", "samples_applied", "bytes", "queued", "served")


def distance(x: Any, y: Any) -> float:
    """|x - y|, without the detour of `Tensor.norm`, which costs as much as the norm."""
    d = x - y
    return vector_norm(d).item() if isinstance(d, Tensor) else float(d.norm())


class Books:
    """Rows as in the simulator. The journal is what a replay follows: (time, what, worker, number)."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.rows: list[tuple[Any, ...]] = []
        self.journal: list[tuple[float, str, int, int]] = []
        self.updates = self.samples = self.samples_applied = self.bytes = 0
        self.queued = self.served = 0.0
        self._noted: set[tuple[int, int]] = set()  # batches that have a row ...
        self._settled = [0] * site.cluster.workers  # ... besides the first so many of each worker

    def counters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COUNTERS}

    def load(self, saved: dict[str, Any]) -> None:
        for name in COUNTERS:
            setattr(self, name, saved[name])
        self._settled = self._site.arena.draws.tolist()
        self._share()

    def happened(self, what: str, worker: int, number: int = 0) -> None:
        self.journal.append((self._site.clock.now(), what, worker, number))

    def announce(self, effect: Any) -> None:
        kind = type(effect)
        if kind is Applied:
            gap = None
            if self._site.options.gap and effect.x is not None:
                gap = distance(effect.x, effect.gradient.at)
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
        tau: int | None = None,
    ) -> None:
        age, used = staleness(version, read) if tau is None else tau, outcome == APPLIED
        self._noted.add((source, draw))
        begin = (time, worker, source, draw, read, version, age, gap, used, outcome)
        self.rows.append((*begin, loss, samples, started, computed, norm, correct))
        if used or outcome == REFUSED:
            self.samples += samples
            self.samples_applied += samples if used else 0
            self._share()

    def settle(self, i: int, version: int | None, outcome: str) -> bool:
        """One row for every batch that worker i has drawn and that has none yet: what it computes, and what it keeps.

        True if there was one.
        """
        arena, now = self._site.arena, self._site.clock.now()
        found = False
        for k in range(self._settled[i], int(arena.draws[i])):
            source, draw = self._site.feed.nth(i, k)
            if (source, draw) not in self._noted:
                found = True
                read = int(arena.job_version[i])
                values = (i, source, draw, None if read < 0 else read, version, None, None, 0)
                self.row(now, *values, float(arena.job_started[i]), now, None, None, outcome=outcome)
            self._noted.discard((source, draw))
        self._settled[i] = int(arena.draws[i])
        return found

    def trim(self) -> None:
        """Forgets batches that have their rows, but for those after a gap."""
        for i in range(len(self._settled)):
            while (pair := self._site.feed.nth(i, self._settled[i])) in self._noted:
                self._noted.discard(pair)
                self._settled[i] += 1

    def listen(self) -> None:
        """Takes over what workers have announced."""
        for i, r in ring.read(self._site.arena):
            if r.kind == ring.STEP:
                self.stepped()
                continue
            source, draw = int(r.source), int(r.draw)
            if r.kind == ring.RECEIVED_ROW:
                seen = (None, None, ring.whole(r.staleness), None, True, RECEIVED, r.loss, 0)
                self.rows.append((r.time, i, source, draw, *seen, r.time, r.time, ring.real(r.norm), None))
                continue
            self.row(
                r.time,
                i,
                source,
                draw,
                ring.whole(r.read),
                ring.whole(r.version),
                ring.real(r.gap),
                r.loss,
                int(r.samples),
                r.started,
                r.computed,
                ring.real(r.norm),
                ring.whole(r.correct),
                outcome=APPLIED,
                tau=ring.whole(r.staleness),
            )

    def snapshot(self, i: int, read: int, version: int | None, outcome: str) -> None:
        """One row for parameters that were sent and not yet used."""
        now = self._site.clock.now()
        begin = (now, i, i, None, read, version, staleness(version, read), None, False, outcome)
        self.rows.append((*begin, None, 0, now, now, None, None))

    def _share(self) -> None:
        arena = self._site.arena
        arena.work[0], arena.updates[0] = self.samples, self.updates
