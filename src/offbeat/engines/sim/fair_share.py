"""Equal shares: those at work divide what there is, a core's time or a link's bytes.

With n at work each gets min(limit, capacity / n). All that is needed is one clock that runs at this rate: who begins at
its time v with work w is finished at v + w, whoever comes and goes meanwhile.
"""

from heapq import heappop, heappush
from typing import Any, ClassVar


class FairShare:
    """Who is at work, and when the first of them is finished if nobody comes or goes. Keys are whole numbers."""

    waiting: ClassVar[tuple[int, ...]] = ()
    """Nobody ever does."""

    def __init__(self, capacity: float, limit: float) -> None:
        self._capacity, self._limit = capacity, limit
        self._clock = 0.0  # what each has got since the beginning ...
        self._now = 0.0  # ... until this moment
        self.ends: dict[int, float] = {}  # by key: the clock's reading at which it is finished
        self._order: list[tuple[float, int]] = []  # the same, the first one first; some no longer hold

    def begin(self, now: float, key: int, work: float, process: int = 0, *, ahead: bool = False) -> None:
        """Whose it is, and whether it is `ahead` of others, counts where there are turns: here all are at work."""
        self._run_to(now)
        self._set(key, self._clock + work)

    def finish(self, now: float, key: int) -> bool:
        """It is finished, at the moment that `first` said."""
        self._clock, self._now = self.ends.pop(key), now
        return True

    def release(self, now: float, process: int) -> None:
        """There are no turns: nobody holds anything."""

    def drop(self, now: float, key: int) -> None:
        """It is given up."""
        self._run_to(now)
        del self.ends[key]

    def stretch(self, now: float, key: int, factor: float) -> None:
        """What is left of its work becomes so many times as much."""
        self._run_to(now)
        self._set(key, self._clock + max(0.0, self.ends[key] - self._clock) * factor)

    def first(self) -> tuple[float, int] | None:
        """(when, who) is finished next; None where nobody is at work."""
        order, ends = self._order, self.ends
        while order and ends.get(order[0][1]) != order[0][0]:
            heappop(order)
        if not order:
            return None
        end, key = order[0]
        return self._now + max(0.0, end - self._clock) / self._rate(), key

    def __contains__(self, key: int) -> bool:
        return key in self.ends

    def _rate(self) -> float:
        return min(self._limit, self._capacity / len(self.ends))

    def _run_to(self, now: float) -> None:
        if self.ends:
            self._clock += (now - self._now) * self._rate()
        self._now = now

    def _set(self, key: int, end: float) -> None:
        self.ends[key] = end
        heappush(self._order, (end, key))

    def saved(self) -> dict[str, Any]:
        return {"clock": self._clock, "now": self._now, "ends": self.ends}

    def load(self, saved: dict[str, Any]) -> None:
        self._clock, self._now, self.ends = saved["clock"], saved["now"], saved["ends"]
        self._order = sorted((end, key) for key, end in self.ends.items())
