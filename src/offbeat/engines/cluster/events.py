"""What happens at a time that is set beforehand: workers join and are lost, or a whole schedule of gradients."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import check_worker, format_duration, parse_duration, shown
from offbeat.engines.cluster.validity import is_count, listed, seconds

EventKind = Literal["join", "lose"]
Schedule = tuple[tuple[float, int], ...]
"""(finish time, worker) of every gradient, in order."""

_EVENT = re.compile(r"\s*(\S+)\s+([0-9]{1,18})\s+at\s+(\S.*)")


@dataclass(frozen=True)
class Event:
    """A worker that appears or disappears: "join 7 at 2s", "lose 3 at 1.5s"."""

    worker: int
    at: float
    kind: EventKind

    def __post_init__(self) -> None:
        if self.kind not in get_args(EventKind):
            raise unknown("event", str(self.kind), get_args(EventKind))
        if not is_count(self.worker):
            raise ConfigError(f"event worker must be a number from 0, got {shown(self.worker)}")
        object.__setattr__(self, "at", seconds(self.at, "event time"))

    @classmethod
    def parse(cls, value: object) -> "Event":
        if isinstance(value, Event):
            return value
        match = _EVENT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ConfigError(f"events must be like 'lose 3 at 1.5s' or 'join 7 at 2s', got {shown(value)}")
        kind, worker, at = match.groups()
        return cls(int(worker), parse_duration(at, "event time"), kind)  # type: ignore[arg-type]  # checked there

    def __str__(self) -> str:
        return f"{self.kind} {self.worker} at {format_duration(self.at)}"


def checked_events(events: Iterable[Event], workers: int) -> tuple[Event, ...]:
    """In order of time; joins and losses of a worker alternate, and somebody is there at the start."""
    events = listed(events, "events")
    last: dict[int, Event] = {}
    present_at_start: dict[int, bool] = {}
    for event in events:
        if not isinstance(event, Event):
            raise ConfigError(f"events must hold Event entries, got {shown(event)}")
        check_worker(event.worker, workers, "events")
    events = tuple(sorted(events, key=lambda event: (event.at, event.worker)))
    for event in events:
        before = last.get(event.worker)
        if before is not None and before.at == event.at:
            raise ConfigError(f"events of one worker need different times, got {str(before)!r} and {str(event)!r}")
        if before is not None and before.kind == event.kind:
            raise ConfigError(f"joins and losses of a worker must alternate, got {str(before)!r}, {str(event)!r}")
        if before is None:
            # A join at 0 is there in time; a loss at 0 is not.
            present_at_start[event.worker] = (event.kind == "join") == (event.at == 0)
        last[event.worker] = event
    if len(present_at_start) == workers and not any(present_at_start.values()):
        got = shown([str(event) for event in events])
        raise ConfigError(f"at least one worker must be present at time 0, got events {got}")
    return events


def checked_schedule(schedule: Iterable[tuple[float, int]], workers: int) -> Schedule:
    """Times do not decrease, and those of one worker increase."""
    checked: list[tuple[float, int]] = []
    latest: dict[int, float] = {}
    for row in listed(schedule, "schedule"):
        if not isinstance(row, tuple | list) or len(row) != 2:
            raise ConfigError(f"schedule must hold (finish time, worker) pairs, got {shown(row)}")
        at, worker = seconds(row[0], "schedule time"), row[1]
        check_worker(worker, workers, "schedule")
        if checked and at < checked[-1][0]:
            raise ConfigError(f"schedule times must not decrease, got {at!r} after {checked[-1][0]!r}")
        if at <= latest.get(worker, -1.0):
            raise ConfigError(f"schedule times of worker {worker!r} must increase, got {at!r} twice")
        latest[worker] = at
        checked.append((at, worker))
    if not checked:
        raise ConfigError("schedule must hold at least one (finish time, worker) pair, got ()")
    return tuple(checked)
