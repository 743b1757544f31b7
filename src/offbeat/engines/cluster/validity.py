"""What the parts of a cluster are checked for, wherever they come from."""

import math
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.units import parse_duration, parse_rate, shown

MOST_WORKERS = 1_000_000  # a slip of the finger should not fill the memory


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_count_of_workers(workers: Any) -> None:
    if not is_count(workers) or workers < 1:
        raise ConfigError(f"workers must be a whole number from 1, got {shown(workers)}")
    if workers > MOST_WORKERS:
        raise ConfigError(f"workers must be at most {MOST_WORKERS:,}, got {workers:,}")


def seconds(value: object, what: str) -> float:
    """Stricter than `parse_duration`: a value holds seconds, only its spelling is text."""
    if not is_number(value):
        raise ConfigError(f"{what} must be a finite number of seconds from 0, got {shown(value)}")
    return parse_duration(value, what)


def bandwidth(value: Any, what: str) -> float:
    """Bytes per second above 0, or infinity."""
    if not is_number(value) or not value > 0:
        raise ConfigError(f"{what} must be above 0 bytes per second, got {shown(value)}")
    return math.inf if value == math.inf else parse_rate(value, what)


def factor(value: Any, what: str) -> float:
    """How many times as fast, or as slow."""
    if not is_number(value) or not 0 < value < math.inf:
        raise ConfigError(f"{what} must be a finite factor above 0, such as '2x', got {shown(value)}")
    return float(value)


def listed(value: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise ConfigError(f"{what} must be a list, got {shown(value)}")
    return tuple(value)
