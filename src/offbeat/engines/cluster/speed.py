"""Machines of different speed, and machines that are slow for a while."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from offbeat.core.errors import ConfigError
from offbeat.core.units import shown
from offbeat.engines.cluster.distributions import Distribution, parse_distribution
from offbeat.engines.cluster.named import Workers, at, check_there, checked_names, is_named, split_named
from offbeat.engines.cluster.validity import factor, listed

_FACTOR = re.compile(r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*x\s*")
_SLOW = re.compile(r"\s*(\S+)\s*(?:for\s+(.+?)\s+every\s+(.+?)\s*(\btogether\b)?)?\s*", re.DOTALL)


@dataclass(frozen=True)
class Speed:
    """Workers that compute so many times as fast: "2x@0-3". Of several entries the last one for a worker counts."""

    factor: float
    workers: Workers = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", factor(self.factor, "speed"))
        object.__setattr__(self, "workers", checked_names(self.workers))

    @classmethod
    def parse(cls, value: object, num_workers: int) -> "Speed":
        if isinstance(value, Speed):
            return value
        if not isinstance(value, str):
            raise ConfigError(f"speed must be like '2x' or '0.5x@0-3', got {shown(value)}")
        text, workers = split_named(value, num_workers, "speed")
        return cls(_times(text, "speed", value), workers)

    def applies_to(self, worker: int) -> bool:
        return is_named(self.workers, worker)

    def __str__(self) -> str:
        return f"{self.factor!r}x{at(self.workers)}"


@dataclass(frozen=True)
class Slowness:
    """Workers that are so many times as slow: "3x@7" for good, "3x for exp(20s) every exp(200s)@all" now and then.

    A spell lasts `lasts`; between two of them, and before the first, the worker has its usual speed for `every`. Each
    worker has spells of its own or, with "together", all of them at once. Spells that overlap multiply.
    """

    factor: float
    lasts: Distribution | None = None
    every: Distribution | None = None
    together: bool = False
    workers: Workers = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", factor(self.factor, "slow"))
        object.__setattr__(self, "workers", checked_names(self.workers))
        if (self.lasts is None) != (self.every is None):
            raise ConfigError("slow needs both, for how long and how often: '3x for exp(20s) every exp(200s)'")
        if self.lasts is not None and self.every is not None and not self.lasts.mean + self.every.mean > 0:
            raise ConfigError(f"slow must change its state after some time, got {shown(str(self))}")

    @classmethod
    def parse(cls, value: object, num_workers: int) -> "Slowness":
        if isinstance(value, Slowness):
            return value
        text, workers = split_named(value, num_workers, "slow") if isinstance(value, str) else ("", None)
        match = _SLOW.fullmatch(text)
        if match is None:
            raise ConfigError(f"slow must be like '3x@7' or '3x for exp(20s) every exp(200s)@all', got {shown(value)}")
        by, lasts, every, together = match.groups()
        spell = None if lasts is None else parse_distribution(lasts, "slow: for")
        usual = None if every is None else parse_distribution(every, "slow: every")
        return cls(_times(by, "slow", value), spell, usual, together is not None, workers)

    def applies_to(self, worker: int) -> bool:
        return is_named(self.workers, worker)

    @property
    def share(self) -> float:
        """Of the time, in the long run, in which it is slow."""
        if self.lasts is None or self.every is None:
            return 1.0
        return self.lasts.mean / (self.lasts.mean + self.every.mean)

    def __str__(self) -> str:
        spells = "" if self.lasts is None else f" for {self.lasts} every {self.every}"
        return f"{self.factor!r}x{spells}{' together' if self.together else ''}{at(self.workers)}"


Entry = TypeVar("Entry", Speed, Slowness)


def checked_factors(entries: Iterable[Entry], kind: type[Entry], workers: int, what: str) -> tuple[Entry, ...]:
    entries = listed(entries, what)
    for entry in entries:
        if not isinstance(entry, kind):
            raise ConfigError(f"{what} must hold {kind.__name__} entries, got {shown(entry)}")
        check_there(entry.workers, workers, what)
    return entries


def _times(text: str, what: str, value: object) -> float:
    match = _FACTOR.fullmatch(text)
    if match is None:
        raise ConfigError(f"{what} must begin with a factor, such as '2x' or '0.5x', got {shown(value)}")
    try:
        return float(match[1])
    except ValueError:
        raise ConfigError(f"{what} must begin with a factor, such as '2x' or '0.5x', got {shown(value)}") from None
