"""Times that differ from worker to worker."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from offbeat.core.errors import ConfigError
from offbeat.core.units import check_worker, format_workers, parse_workers, shown
from offbeat.engines.cluster.distributions import Distribution, parse_distribution
from offbeat.engines.cluster.validity import is_count, listed


@dataclass(frozen=True)
class PerWorker:
    """A distribution for some workers ("30ms@0", "normal(30ms, 5ms)@2-4") or for all of them ("10ms")."""

    distribution: Distribution
    workers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.distribution, Distribution):
            raise ConfigError(f"a time per worker must be a distribution, got {shown(self.distribution)}")
        if self.workers is not None:
            workers = tuple(self.workers)
            if not workers or any(not is_count(worker) for worker in workers):
                raise ConfigError(f"workers must be one or more numbers from 0, or None for all, got {shown(workers)}")
            object.__setattr__(self, "workers", tuple(sorted(set(workers))))

    @classmethod
    def parse(cls, value: object, num_workers: int, what: str = "time") -> "PerWorker":
        if isinstance(value, PerWorker):
            return value
        if not isinstance(value, str) or "@" not in value:
            return cls(parse_distribution(value, what))
        time, _, workers = value.rpartition("@")
        named = None if workers.strip() == "all" else parse_workers(workers, num_workers, what)
        return cls(parse_distribution(time, what), named)

    def applies_to(self, worker: int) -> bool:
        if self.workers is None:
            return True
        place = bisect_left(self.workers, worker)  # they are sorted, and may be a million
        return place < len(self.workers) and self.workers[place] == worker

    def __str__(self) -> str:
        return str(self.distribution) + ("" if self.workers is None else f"@{format_workers(self.workers)}")


def checked_times(entries: Iterable[PerWorker], workers: int, what: str) -> tuple[PerWorker, ...]:
    entries = listed(entries, what)
    for entry in entries:
        if not isinstance(entry, PerWorker):
            raise ConfigError(f"{what} must hold PerWorker entries, got {shown(entry)}")
        for worker in entry.workers or ():
            check_worker(worker, workers, what)
    return entries


def check_everybody_has_a_time(entries: Iterable[PerWorker], workers: int) -> None:
    named: set[int] = set()
    for entry in entries:
        if entry.workers is None:
            return
        named.update(entry.workers)
    missing = set(range(workers)) - named
    if missing:
        names = format_workers(missing)
        raise ConfigError(f"compute gives no time for workers {names}; put one for all first, such as '10ms'")
