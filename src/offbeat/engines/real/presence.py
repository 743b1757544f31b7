"""Which workers are there, since when, and in which of their lives."""

from collections.abc import Sequence


class Presence:
    """The control's roll of workers. Times are those of the run's clock."""

    def __init__(self, workers: int) -> None:
        self.lives = [0] * workers
        """How often each was started."""
        self.there: set[int] = set()
        self._since = [0.0] * workers
        self._before = [0.0] * workers  # seconds of presence before that

    def come(self, i: int, now: float) -> int:
        """It is started; for the how manieth time."""
        self.lives[i] += 1
        self.there.add(i)
        self._since[i] = now
        return self.lives[i]

    def go(self, i: int, now: float) -> None:
        """It is gone, by itself or lost."""
        self._count(i, now)
        self.there.discard(i)

    def settle(self, now: float) -> None:
        """Counts up to now: the run is over, or everybody begins again."""
        for i in self.there:
            self._count(i, now)

    def seconds(self, i: int, now: float) -> float:
        return self._before[i] + (now - self._since[i] if i in self.there else 0.0)

    def restore(self, lives: list[int], there: Sequence[int], seconds: list[float]) -> None:
        self.lives, self.there, self._before = lives, set(there), seconds

    def _count(self, i: int, now: float) -> None:
        self._before[i] += now - self._since[i]
        self._since[i] = now
