"""For whom a setting is: `@3`, `@0,8-11`, `@all`."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from offbeat.core.errors import ConfigError
from offbeat.core.units import check_worker, format_workers, parse_workers, shown
from offbeat.engines.cluster.validity import is_count

Workers = tuple[int, ...] | None
"""Sorted worker numbers; None is everybody."""
MOST_ENTRIES = 100_000
"""Of one setting: more are read for many seconds, and nobody has typed them."""
MOST_NAMED = 4_000_000
"""Workers that the entries of one setting name in all; each takes memory."""
_FEW = 8
"""So many entries are looked at one by one."""


class Named(Protocol):
    """An entry that is for some workers, or for everybody."""

    @property
    def workers(self) -> Workers: ...


Entry = TypeVar("Entry", bound=Named)


class ByWorker(Generic[Entry]):
    """The entries of a setting, by the worker for whom they are: with thousands of both, one does not look at all."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._for_all = [k for k, entry in enumerate(entries) if entry.workers is None]
        self._named: dict[int, list[int]] | None = None
        if len(entries) > _FEW:
            self._named = {}
            for k, entry in enumerate(entries):
                for worker in entry.workers or ():
                    self._named.setdefault(worker, []).append(k)

    def of(self, worker: int) -> list[tuple[int, Entry]]:
        """Those for this worker in their order, each with its number."""
        if self._named is None:
            return [(k, entry) for k, entry in enumerate(self._entries) if is_named(entry.workers, worker)]
        return [(k, self._entries[k]) for k in sorted([*self._for_all, *self._named.get(worker, ())])]

    def last(self, worker: int) -> Entry | None:
        """The last one for this worker."""
        if self._named is None:
            return next((entry for entry in reversed(self._entries) if is_named(entry.workers, worker)), None)
        numbers = [*self._for_all[-1:], *self._named.get(worker, ())[-1:]]
        return self._entries[max(numbers)] if numbers else None


def split_named(text: str, num_workers: int, what: str) -> tuple[str, Workers]:
    """What stands before the @, and for whom."""
    value, at, workers = text.rpartition("@")
    if not at:
        return text, None
    return value, None if workers.strip() == "all" else parse_workers(workers, num_workers, what)


def checked_names(workers: Any) -> Workers:
    if workers is None:
        return None
    workers = tuple(workers)
    if not workers or any(not is_count(worker) for worker in workers):
        raise ConfigError(f"workers must be one or more numbers from 0, or None for all, got {shown(workers)}")
    return tuple(sorted(set(workers)))


def check_there(workers: Workers, num_workers: int, what: str) -> None:
    for worker in workers or ():
        check_worker(worker, num_workers, what)


def is_named(workers: Workers, worker: int) -> bool:
    if workers is None:
        return True
    place = bisect_left(workers, worker)  # they are sorted, and may be a million
    return place < len(workers) and workers[place] == worker


def at(workers: Workers) -> str:
    """As it was written: nothing for everybody."""
    return "" if workers is None else f"@{format_workers(workers)}"
