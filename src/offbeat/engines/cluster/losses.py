"""Workers that are taken away at random and come back: spot machines, volunteers, hardware that fails."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.units import counted, format_duration, parse_duration, shown
from offbeat.engines.cluster.distributions import Distribution, parse_distribution
from offbeat.engines.cluster.events import Event
from offbeat.engines.cluster.named import Workers, at, check_there, checked_names, is_named, split_named
from offbeat.engines.cluster.validity import is_count, listed, seconds

_LIKE = "'every exp(1h), back after lognormal(60s, 30s), notice 30s, floor 4@0-7'"
_COMMA = re.compile(r",(?![^(]*\))")  # outside parentheses
_CLAUSES = ("every", "back after", "notice", "floor")


@dataclass(frozen=True)
class Loss:
    """A worker is lost `every` so often, counted from when it came, and is `back` after a while (None: never).

    It is told `notice` seconds before: it then ends the batch at hand and begins no other. A loss that would leave
    fewer than `floor` workers of the whole cluster does not happen.
    """

    every: Distribution
    back: Distribution | None = None
    notice: float = 0.0
    floor: int = 0
    workers: Workers = None

    def __post_init__(self) -> None:
        for what, value in (("every", self.every), ("back after", self.back)):
            if not isinstance(value, Distribution) and (value is not None or what == "every"):
                raise ConfigError(f"loss: {what} must be a time or a distribution, got {shown(value)}")
        if not self.every.mean > 0:
            raise ConfigError(f"loss: every must be above 0 on average, got {shown(str(self.every))}")
        object.__setattr__(self, "notice", seconds(self.notice, "loss: notice"))
        if not is_count(self.floor):
            raise ConfigError(f"loss: floor must be a whole number of workers from 0, got {shown(self.floor)}")
        object.__setattr__(self, "workers", checked_names(self.workers))

    @classmethod
    def parse(cls, value: object, num_workers: int) -> "Loss":
        if isinstance(value, Loss):
            return value
        if not isinstance(value, str):
            raise ConfigError(f"loss must be like {_LIKE}, got {shown(value)}")
        text, workers = split_named(value, num_workers, "loss")
        found: dict[str, Any] = {}
        for clause in _COMMA.split(text):
            words = " ".join(clause.split())
            name = next((n for n in _CLAUSES if words.startswith(f"{n} ")), None)
            if name is None or name in found:
                raise ConfigError(f"loss must be like {_LIKE}, got {shown(value)}")
            found[name] = words.removeprefix(name).strip()
        if "every" not in found:
            raise ConfigError(f"loss needs 'every' and a time, like {_LIKE}, got {shown(value)}")
        back, floor = found.get("back after"), found.get("floor", "0")
        return cls(
            parse_distribution(found["every"], "loss: every"),
            None if back is None else parse_distribution(back, "loss: back after"),
            parse_duration(found.get("notice", 0.0), "loss: notice"),
            int(floor) if floor.isdecimal() and len(floor) < 18 else floor,
            workers,
        )

    def applies_to(self, worker: int) -> bool:
        return is_named(self.workers, worker)

    @property
    def availability(self) -> float:
        """The share of time, in the long run, in which a machine is there: MTBF / (MTBF + MTTR)."""
        return 0.0 if self.back is None else self.every.mean / (self.every.mean + self.back.mean)

    def __str__(self) -> str:
        clauses = [f"every {self.every}"]
        clauses += [] if self.back is None else [f"back after {self.back}"]
        clauses += [f"notice {format_duration(self.notice)}"] if self.notice else []
        clauses += [f"floor {self.floor}"] if self.floor else []
        return ", ".join(clauses) + at(self.workers)


def checked_losses(entries: Iterable[Loss], events: tuple[Event, ...], workers: int) -> tuple[Loss, ...]:
    """Nobody is lost in two ways, and somebody stays or comes back."""
    entries = listed(entries, "loss")
    for entry in entries:
        if not isinstance(entry, Loss):
            raise ConfigError(f"loss must hold Loss entries, got {shown(entry)}")
        check_there(entry.workers, workers, "loss")
        if entry.floor >= workers:
            raise ConfigError(f"loss: floor must be below the number of workers, {workers}, got {entry.floor}")
    if not entries:
        return entries
    listed_ones = {event.worker for event in events}
    covered: set[int] = set()
    gone = 0
    for entry in entries:
        mine = set(range(workers) if entry.workers is None else entry.workers)
        for what, others in (("loss", covered), ("events", listed_ones)):
            if both := mine & others:
                twice = "has two entries for" if what == "loss" else "and events both name"
                raise ConfigError(f"loss {twice} worker {min(both)}: give one of them")
        covered |= mine
        gone += len(mine) if entry.back is None and entry.floor == 0 else 0
    if gone == workers:
        raise ConfigError(
            f"loss leaves nobody of {counted(workers, 'worker')}: add 'back after ...', or 'floor 1' so that one stays"
        )
    return entries
