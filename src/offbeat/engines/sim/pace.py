"""How fast a worker is at each moment: spells of slowness come and go, whatever it does."""

from collections import deque
from math import inf
from typing import Any

from offbeat.core.seeds import Dial, Draws
from offbeat.engines.cluster import Cluster, Slowness


class Spells:
    """When one entry of `slow` begins and ends: an alternating sequence of times, made as far as it is looked at."""

    def __init__(self, entry: Slowness, number: int, worker: int, seed: int, dial: Dial) -> None:
        self.factor = entry.factor
        self.slow = entry.lasts is None  # for good
        self.ahead: deque[float] = deque()  # the next changes
        self._passed = 0
        self._last = 0.0
        source = 0 if entry.together else worker
        self._draws: list[Draws] = []  # how long it is fast, and how long slow
        if entry.lasts is not None and entry.every is not None:
            for stream, time in ((f"usual{number}", entry.every), (f"slow{number}", entry.lasts)):
                self._draws.append(Draws(time.sample, seed=seed, stream=stream, source=source, dial=dial))

    def pass_by(self, now: float) -> None:
        """Forgets the changes up to now."""
        while self._draws and self.change(0) <= now:
            self._last = self.ahead.popleft()
            self._passed += 1
            self.slow = not self.slow

    def change(self, k: int) -> float:
        """When the k-th change to come is."""
        if not self._draws:
            return inf
        while len(self.ahead) <= k:
            before = self.ahead[-1] if self.ahead else self._last
            self.ahead.append(before + self._draws[(self._passed + len(self.ahead)) % 2].next())
        return self.ahead[k]

    def saved(self) -> tuple[int, float]:
        return self._passed, self._last

    def load(self, saved: tuple[int, float]) -> None:
        self._passed, self._last = saved
        self.slow = not self._draws or self._passed % 2 == 1
        self.ahead.clear()
        for k, draws in enumerate(self._draws):
            draws.position = (self._passed + 1 - k) // 2


class Pace:
    """All spells of one worker together: its speed is 1 over the product of the factors in force."""

    def __init__(self, cluster: Cluster, worker: int, seed: int, dial: Dial) -> None:
        self._spells = [Spells(entry, k, worker, seed, dial) for k, entry in cluster.slowness_of(worker)]

    def speed(self, now: float) -> float:
        """From now on, until `change`."""
        for spells in self._spells:
            spells.pass_by(now)
        return self._product([spells.slow for spells in self._spells])

    def change(self) -> float:
        """When it next changes, after the last `speed`."""
        return min(spells.change(0) for spells in self._spells)

    def due(self, start: float, work: float) -> float:
        """When work is done that would take so long at speed 1. What lies ahead stays: it may be broken off before."""
        speed = self.speed(start)
        slow, at = [spells.slow for spells in self._spells], [0] * len(self._spells)
        while True:
            changes = [spells.change(k) for spells, k in zip(self._spells, at, strict=True)]
            first = min(changes)
            end = start + work / speed
            if end <= first:
                return end
            work = max(0.0, work - (first - start) * speed)
            start = first
            which = changes.index(first)
            at[which] += 1
            slow[which] = not slow[which]
            speed = self._product(slow)

    def _product(self, slow: list[bool]) -> float:
        speed = 1.0
        for spells, is_slow in zip(self._spells, slow, strict=True):
            if is_slow:
                speed /= spells.factor
        return speed

    def saved(self) -> list[Any]:
        return [spells.saved() for spells in self._spells]

    def load(self, saved: list[Any]) -> None:
        for spells, one in zip(self._spells, saved, strict=True):
            spells.load(one)
