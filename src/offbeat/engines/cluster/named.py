"""For whom a setting is: `@3`, `@0,8-11`, `@all`."""

from bisect import bisect_left
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.units import check_worker, format_workers, parse_workers, shown
from offbeat.engines.cluster.validity import is_count

Workers = tuple[int, ...] | None
"""Sorted worker numbers; None is everybody."""


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
