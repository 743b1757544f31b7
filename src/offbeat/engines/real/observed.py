"""What a watcher may ask of a real run, whatever is going on in its processes."""

from collections.abc import Callable
from typing import Any

from offbeat.core.effects import Applied
from offbeat.core.task import Point
from offbeat.engines.real import messages as m
from offbeat.engines.real.mirror import Mirror
from offbeat.engines.real.presence import Presence
from offbeat.engines.real.transport import Processes
from offbeat.engines.running.buffers import mean_buffers


class Observed:
    """The run as it was written down last, and what its workers show of themselves."""

    def __init__(self, workers: int, initial: Point, x: Any) -> None:
        self.initial = initial
        self.mirror = Mirror()
        self.presence = Presence(workers)
        self.processes: Processes  # set by the engine
        self._x = x  # what is evaluated before anything has begun
        self._begun = False

    @property
    def now(self) -> float:
        return self.mirror.now

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.mirror.ledger.rows

    @property
    def journal(self) -> list[m.Entry]:
        return self.mirror.journal

    @property
    def updates(self) -> int:
        return self.mirror.ledger.updates

    @property
    def samples(self) -> int:
        return self.mirror.ledger.samples

    @property
    def samples_applied(self) -> int:
        return self.mirror.ledger.samples_applied

    @property
    def bytes(self) -> int:
        return self.mirror.bytes

    @property
    def queued(self) -> float:
        return self.mirror.queued

    @property
    def served(self) -> float:
        return self.mirror.served

    @property
    def point(self) -> Point:
        """As of the last time everything stood still for the watcher."""
        board, like = self.processes.board, self.initial.buffers
        x = board.snapshot() if self._begun else self._x
        workers = range(len(self.presence.lives))
        owned = [board.published_buffers(i, like) for i in workers if board.samples[i] > 0]
        return Point(x, mean_buffers(like, owned))

    @property
    def lost_share(self) -> float | None:
        return self.processes.lost_share()

    @property
    def machines(self) -> list[str]:
        found = self.processes.machines()
        return [found.get(i, "") for i in range(len(self.presence.lives))] if found else []

    def show_applied(self, look: Callable[[Applied], None]) -> bool:
        return False  # gradients are in other processes, and the clock goes on

    def breakdown(self) -> list[dict[str, float]]:
        """Where the seconds of each worker went; waiting is what is left."""
        out = []
        for i in range(len(self.presence.lives)):
            present, spent = self.presence.seconds(i, self.now), self.processes.board.seconds(i, self.now)
            out.append({"present": present, **spent, "waiting": max(0.0, present - sum(spent.values()))})
        return out
