"""Times that differ from worker to worker."""

from collections.abc import Iterable
from dataclasses import dataclass

from offbeat.core.errors import ConfigError
from offbeat.core.units import format_workers, shown
from offbeat.engines.cluster.batch_times import BatchTime, parse_batch_time
from offbeat.engines.cluster.distributions import Distribution, parse_distribution
from offbeat.engines.cluster.named import Workers, at, check_there, checked_names, is_named, split_named
from offbeat.engines.cluster.validity import listed


@dataclass(frozen=True)
class PerWorker:
    """A time for some workers ("30ms@0", "normal(30ms, 5ms)@2-4") or for all of them ("10ms")."""

    distribution: BatchTime
    workers: Workers = None

    def __post_init__(self) -> None:
        if not isinstance(self.distribution, BatchTime):
            raise ConfigError(f"a time per worker must be a distribution, got {shown(self.distribution)}")
        object.__setattr__(self, "workers", checked_names(self.workers))

    @classmethod
    def parse(cls, value: object, num_workers: int, what: str = "time") -> "PerWorker":
        if isinstance(value, PerWorker):
            return value
        read = parse_batch_time if what == "compute" else parse_distribution
        if not isinstance(value, str) or "@" not in value:
            return cls(read(value, what))
        time, workers = split_named(value, num_workers, what)
        return cls(read(time, what), workers)

    def applies_to(self, worker: int) -> bool:
        return is_named(self.workers, worker)

    def __str__(self) -> str:
        return str(self.distribution) + at(self.workers)


def checked_times(entries: Iterable[PerWorker], workers: int, what: str) -> tuple[PerWorker, ...]:
    entries = listed(entries, what)
    for entry in entries:
        if not isinstance(entry, PerWorker):
            raise ConfigError(f"{what} must hold PerWorker entries, got {shown(entry)}")
        if what != "compute" and not isinstance(entry.distribution, Distribution):
            raise ConfigError(f"{what} must hold distributions, got {shown(str(entry))}")
        check_there(entry.workers, workers, what)
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
