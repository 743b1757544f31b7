"""Whole cores, in turns: a process that has one keeps it for a slice of time, and then the next in the queue has it.

That is what an operating system does. Work that is shorter than a slice is not interrupted but may have to wait for a
core, which equal shares (`fair_share.py`) know nothing of; with slices near 0 the two are the same.

A process that goes on with other work at the same moment keeps its core, and what is left of its turn. So a core is
held when its work is finished, until the moment is over; where somebody waits, `release` says that it is.
"""

from collections import deque
from typing import Any, NamedTuple

from offbeat.core.seeds import Draws


class Turn(NamedTuple):
    """Somebody has a core: since when, until when (its work, or its turn, is over then), and for how long at most."""

    since: float
    until: float
    most: float


class Turns:
    """Who has a core until when, and who waits for one. Pieces of work and processes are whole numbers."""

    def __init__(self, cores: int, slices: Draws) -> None:
        self._cores, self._slices = cores, slices
        self.left: dict[int, float] = {}  # by piece: what was left of it when it last got a core
        self.process: dict[int, int] = {}  # by piece: whose it is
        self.running: dict[int, Turn] = {}
        self.waiting: deque[int] = deque()
        self.held: dict[int, float] = {}  # by process: a core without work, and what is left of the turn ...
        self._moment = 0.0  # ... at this moment, and no longer

    def begin(self, now: float, key: int, work: float, process: int, *, ahead: bool = False) -> None:
        """`ahead` of others it gets a core at once: who got one last gives its own back, and is next in the queue."""
        self.left[key], self.process[key] = work, process
        self._come_to(now)
        rest = self.held.pop(process, None)
        if rest is not None:
            self._run(now, key, rest)
        elif len(self.running) + len(self.held) < self._cores:
            self._run(now, key, self._slices.next())
        elif self.held and (ahead or not self.waiting):
            self.held.popitem()
            self._run(now, key, self._slices.next())
        elif ahead:
            last = max(self.running, key=lambda k: (self.running[k].since, k))
            self._pause(now, last)
            self.waiting.appendleft(last)
            self._run(now, key, self._slices.next())
        else:
            self.waiting.append(key)

    def finish(self, now: float, key: int) -> bool:
        """Its work is finished, or its turn, at the moment that `first` said; whether its work is."""
        turn = self.running.pop(key)
        self._come_to(now)
        if self.left[key] <= turn.most:
            rest = max(0.0, turn.most - self.left.pop(key))
            self.held[self.process.pop(key)] = rest
            return True
        self.left[key] -= turn.most
        self.waiting.append(key)
        self._fill(now)
        return False

    def release(self, now: float, process: int) -> None:
        """It had nothing else to do at this moment: the next one may have its core."""
        if self.held.pop(process, None) is not None:
            self._fill(now)

    def drop(self, now: float, key: int) -> None:
        """It is given up."""
        del self.left[key], self.process[key]
        if self.running.pop(key, None) is None:
            self.waiting.remove(key)
        self._come_to(now)
        self._fill(now)

    def stretch(self, now: float, key: int, factor: float) -> None:
        """What is left of its work becomes so many times as much."""
        rest = self._pause(now, key) if key in self.running else None
        self.left[key] *= factor
        if rest is not None:
            self._run(now, key, rest)

    def first(self) -> tuple[float, int] | None:
        """(when, whose) work or turn is over next; None where nobody is at work."""
        return min(((turn.until, key) for key, turn in self.running.items()), default=None)

    def __contains__(self, key: int) -> bool:
        return key in self.left

    def _come_to(self, now: float) -> None:
        if now != self._moment:
            self._moment = now
            self.held.clear()

    def _run(self, now: float, key: int, most: float) -> None:
        self.running[key] = Turn(now, now + min(self.left[key], most), most)

    def _pause(self, now: float, key: int) -> float:
        """Takes its core away; what is left of its turn."""
        turn = self.running.pop(key)
        had = now - turn.since
        self.left[key] = max(0.0, self.left[key] - had)
        return max(0.0, turn.most - had)

    def _fill(self, now: float) -> None:
        while self.waiting and len(self.running) + len(self.held) < self._cores:
            self._run(now, self.waiting.popleft(), self._slices.next())

    def saved(self) -> dict[str, Any]:
        running = {key: tuple(turn) for key, turn in self.running.items()}
        same = {"left": self.left, "process": self.process, "held": self.held, "moment": self._moment}
        return {**same, "running": running, "waiting": list(self.waiting), "slices": self._slices.position}

    def load(self, saved: dict[str, Any]) -> None:
        self.left, self.process, self.held = saved["left"], saved["process"], saved["held"]
        self.running = {key: Turn(*turn) for key, turn in saved["running"].items()}
        self.waiting, self._slices.position = deque(saved["waiting"]), saved["slices"]
        self._moment = saved["moment"]
