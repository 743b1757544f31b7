"""The cluster as a value: how long workers compute, how fast links and server are, who joins and who is lost."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import (
    check_worker,
    format_duration,
    format_rate,
    format_workers,
    parse_duration,
    parse_rate,
    parse_workers,
    shown,
)
from offbeat.engines.distributions import ZERO, Constant, Distribution, parse_distribution

EventKind = Literal["join", "lose"]
AllReduceKind = Literal["ring", "hierarchical"]

UNLIMITED = "unlimited"  # JSON has no infinity
MOST_WORKERS = 1_000_000  # a slip of the finger should not fill the memory

_EVENT = re.compile(r"\s*(\S+)\s+([0-9]{1,18})\s+at\s+(\S.*)")
_ALLREDUCE = re.compile(r"\s*(\w+)\s*(?:\(\s*([0-9]{1,18})\s*\))?\s*")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_workers(workers: Any) -> None:
    if not _is_count(workers) or workers < 1:
        raise ConfigError(f"workers must be a whole number from 1, got {shown(workers)}")
    if workers > MOST_WORKERS:
        raise ConfigError(f"workers must be at most {MOST_WORKERS:,}, got {workers:,}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


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
            if not workers or any(not _is_count(worker) for worker in workers):
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
        return self.workers is None or worker in self.workers

    def __str__(self) -> str:
        return str(self.distribution) + ("" if self.workers is None else f"@{format_workers(self.workers)}")


@dataclass(frozen=True)
class Event:
    """A worker that appears or disappears: "join 7 at 2s", "lose 3 at 1.5s"."""

    worker: int
    at: float
    kind: EventKind

    def __post_init__(self) -> None:
        if self.kind not in get_args(EventKind):
            raise unknown("event", str(self.kind), get_args(EventKind))
        if not _is_count(self.worker):
            raise ConfigError(f"event worker must be a number from 0, got {shown(self.worker)}")
        object.__setattr__(self, "at", _time(self.at, "event time"))

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


@dataclass(frozen=True)
class AllReduceCost:
    """How an all-reduce is carried out: "ring", or "hierarchical(8)" with rings among leaders of groups of 8."""

    kind: AllReduceKind = "ring"
    group: int = 8

    def __post_init__(self) -> None:
        if self.kind not in get_args(AllReduceKind):
            raise unknown("allreduce", str(self.kind), get_args(AllReduceKind))
        if not _is_count(self.group) or self.group < 1:
            raise ConfigError(f"allreduce group must be a whole number from 1, got {shown(self.group)}")
        if self.kind == "ring":  # no groups: equal costs compare equal
            object.__setattr__(self, "group", 8)

    @classmethod
    def parse(cls, value: object) -> "AllReduceCost":
        if isinstance(value, AllReduceCost):
            return value
        match = _ALLREDUCE.fullmatch(value) if isinstance(value, str) else None
        if match is None or (match[1] == "ring" and match[2]):
            raise ConfigError(f"allreduce must be 'ring', 'hierarchical' or 'hierarchical(8)', got {shown(value)}")
        return cls(match[1], int(match[2] or 8))  # type: ignore[arg-type]  # checked there

    def __str__(self) -> str:
        return "ring" if self.kind == "ring" else f"hierarchical({self.group})"


@dataclass(frozen=True)
class PeerLatency:
    """Latency between two sets of workers, both ways: "5ms@0-3>4-7"; "2ms" is for every pair."""

    latency: float
    one: tuple[int, ...] | None = None
    other: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, value: object, num_workers: int) -> "PeerLatency":
        if isinstance(value, PeerLatency):
            return value
        text = value if isinstance(value, str) else str(value)
        time, at, pair = text.partition("@")
        if not at:
            return cls(parse_duration(value, "peers"))
        one, arrow, other = pair.partition(">")
        if not arrow:
            raise ConfigError(f"peers must be like '2ms' or '5ms@0-3>4-7', got {shown(value)}")
        sets = (parse_workers(part, num_workers, "peers") for part in (one, other))
        return cls(parse_duration(time, "peers"), *sets)

    def applies_to(self, i: int, j: int) -> bool:
        if self.one is None or self.other is None:
            return True
        return (i in self.one and j in self.other) or (j in self.one and i in self.other)

    def __str__(self) -> str:
        time = format_duration(self.latency)
        if self.one is None or self.other is None:
            return time
        return f"{time}@{format_workers(self.one)}>{format_workers(self.other)}"


@dataclass(frozen=True)
class Cluster:
    """Workers 0 ... workers - 1, their times, links, server, joins and losses.

    `compute` is the time of one batch; a later entry overrides earlier ones for its workers. `delay` comes on top of
    it, and entries that name the same worker add up. `latency` (seconds, each way) and `bandwidth` (bytes per second
    of a worker's link) are the cost of a message, `service` what the server takes for each, one at a time, first come
    first served. `peers` is the latency between workers where they talk to each other (default: `latency`), `memory`
    the time of one pass over a shared vector, and `feeder` the time that a mini-batch generator node takes for each
    batch before a worker can begin with it (zero: every worker has its data at hand). `schedule` lists (finish time,
    worker) in order and replaces compute and delay. A worker whose first
    event is a join is absent until then; every other worker is there from time 0.
    """

    workers: int = 1
    compute: tuple[PerWorker, ...] = (PerWorker(Constant(0.01)),)
    delay: tuple[PerWorker, ...] = ()
    latency: float = 0.0
    bandwidth: float = math.inf
    service: Distribution = ZERO
    allreduce: AllReduceCost = AllReduceCost()
    events: tuple[Event, ...] = ()
    peers: tuple[PeerLatency, ...] = ()
    memory: float = 0.0
    feeder: Distribution = ZERO
    schedule: tuple[tuple[float, int], ...] | None = None

    def __post_init__(self) -> None:
        _check_workers(self.workers)
        object.__setattr__(self, "compute", self._checked_times(self.compute, "compute"))
        object.__setattr__(self, "delay", self._checked_times(self.delay, "delay"))
        if all(entry.workers is not None for entry in self.compute):
            missing = set(range(self.workers)).difference(*(entry.workers or () for entry in self.compute))
            if missing:
                names = format_workers(missing)
                raise ConfigError(f"compute gives no time for workers {names}; put one for all first, such as '10ms'")
        object.__setattr__(self, "latency", _time(self.latency, "latency"))
        if not _is_number(self.bandwidth) or not self.bandwidth > 0:
            raise ConfigError(f"bandwidth must be above 0 bytes per second, got {shown(self.bandwidth)}")
        if self.bandwidth != math.inf:
            object.__setattr__(self, "bandwidth", parse_rate(self.bandwidth, "bandwidth"))
        if not isinstance(self.service, Distribution):
            raise ConfigError(f"service must be a distribution, got {shown(self.service)}")
        if not isinstance(self.allreduce, AllReduceCost):
            raise ConfigError(f"allreduce must be an AllReduceCost, got {shown(self.allreduce)}")
        object.__setattr__(self, "memory", _time(self.memory, "memory"))
        if not isinstance(self.feeder, Distribution):
            raise ConfigError(f"feeder must be a distribution, got {shown(self.feeder)}")
        object.__setattr__(self, "events", self._checked_events())
        if self.schedule is not None:
            object.__setattr__(self, "schedule", self._checked_schedule(self.schedule))

    def _checked_times(self, entries: Iterable[PerWorker], what: str) -> tuple[PerWorker, ...]:
        entries = _listed(entries, what)
        for entry in entries:
            if not isinstance(entry, PerWorker):
                raise ConfigError(f"{what} must hold PerWorker entries, got {shown(entry)}")
            for worker in entry.workers or ():
                check_worker(worker, self.workers, what)
        return entries

    def _checked_events(self) -> tuple[Event, ...]:
        events = _listed(self.events, "events")
        last: dict[int, Event] = {}
        present_at_start: dict[int, bool] = {}
        for event in events:
            if not isinstance(event, Event):
                raise ConfigError(f"events must hold Event entries, got {shown(event)}")
            check_worker(event.worker, self.workers, "events")
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
        if len(present_at_start) == self.workers and not any(present_at_start.values()):
            got = shown([str(event) for event in events])
            raise ConfigError(f"at least one worker must be present at time 0, got events {got}")
        return events

    def _checked_schedule(self, schedule: Iterable[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
        checked: list[tuple[float, int]] = []
        latest: dict[int, float] = {}
        for row in _listed(schedule, "schedule"):
            if not isinstance(row, tuple | list) or len(row) != 2:
                raise ConfigError(f"schedule must hold (finish time, worker) pairs, got {shown(row)}")
            at, worker = _time(row[0], "schedule time"), row[1]
            check_worker(worker, self.workers, "schedule")
            if checked and at < checked[-1][0]:
                raise ConfigError(f"schedule times must not decrease, got {at!r} after {checked[-1][0]!r}")
            if at <= latest.get(worker, -1.0):
                raise ConfigError(f"schedule times of worker {worker!r} must increase, got {at!r} twice")
            latest[worker] = at
            checked.append((at, worker))
        if not checked:
            raise ConfigError("schedule must hold at least one (finish time, worker) pair, got ()")
        return tuple(checked)

    @classmethod
    def parse(cls, **values: Any) -> "Cluster":
        """A cluster from plain JSON or TOML values: `Cluster.parse(workers=8, compute="normal(10ms, 2ms)")`."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown("cluster setting", name, known)
        num_workers = values.get("workers", 1)
        _check_workers(num_workers)
        for name in ("compute", "delay"):
            if name in values:
                values[name] = tuple(PerWorker.parse(value, num_workers, name) for value in _one_or_more(values[name]))
        if "latency" in values:
            values["latency"] = parse_duration(values["latency"], "latency")
        if "bandwidth" in values:
            bandwidth = values["bandwidth"]
            unlimited = bandwidth in (UNLIMITED, "inf", math.inf)
            values["bandwidth"] = math.inf if unlimited else parse_rate(bandwidth, "bandwidth")
        for name in ("service", "feeder"):
            if name in values:
                values[name] = parse_distribution(values[name], name)
        if "memory" in values:
            values["memory"] = parse_duration(values["memory"], "memory")
        if "peers" in values:
            values["peers"] = tuple(PeerLatency.parse(value, num_workers) for value in _one_or_more(values["peers"]))
        if "allreduce" in values:
            values["allreduce"] = AllReduceCost.parse(values["allreduce"])
        if "events" in values:
            values["events"] = tuple(Event.parse(value) for value in _one_or_more(values["events"]))
        if values.get("schedule") is not None:
            values["schedule"] = tuple(_scheduled(row) for row in _listed(values["schedule"], "schedule"))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values that `Cluster.parse(**values)` reads back to an equal cluster."""
        values: dict[str, Any] = {
            "workers": self.workers,
            "compute": [str(entry) for entry in self.compute],
            "delay": [str(entry) for entry in self.delay],
            "latency": format_duration(self.latency),
            "bandwidth": UNLIMITED if self.bandwidth == math.inf else format_rate(self.bandwidth),
            "service": str(self.service),
            "allreduce": str(self.allreduce),
            "events": [str(event) for event in self.events],
            "peers": [str(entry) for entry in self.peers],
            "memory": format_duration(self.memory),
            "feeder": str(self.feeder),
        }
        if self.schedule is not None:  # left out otherwise, because TOML has no null
            values["schedule"] = [[at, worker] for at, worker in self.schedule]
        return values

    def compute_of(self, worker: int) -> Distribution:
        """The time of one batch on this worker: the last entry that applies."""
        check_worker(worker, self.workers, "compute")
        return next(entry.distribution for entry in reversed(self.compute) if entry.applies_to(worker))

    def delays_of(self, worker: int) -> tuple[Distribution, ...]:
        """The extra delays of one batch on this worker, to be added up."""
        check_worker(worker, self.workers, "delay")
        return tuple(entry.distribution for entry in self.delay if entry.applies_to(worker))

    def transfer_time(self, num_bytes: int) -> float:
        """One message over one link: latency + N / bandwidth."""
        return self.latency + num_bytes / self.bandwidth

    def peer_time(self, i: int, j: int, num_bytes: int) -> float:
        """One message between two workers; the last entry of `peers` that applies, else the common latency."""
        latency = next((p.latency for p in reversed(self.peers) if p.applies_to(i, j)), self.latency)
        return latency + num_bytes / self.bandwidth

    def allreduce_time(self, num_bytes: int, num_workers: int, group: int | None = None) -> float:
        """An all-reduce of N bytes among W workers, 0 for W = 1.

        ring:          2 (W - 1) latency + 2 N (W - 1) / W / bandwidth
                       (W - 1 steps of reduce-scatter and W - 1 of all-gather, N / W bytes each).
        hierarchical:  2 (g - 1) (latency + N / bandwidth) + ring(N, L), with groups of G (the last may be smaller),
                       g = min(G, W) members in the largest group, L = ceil(W / G) leaders. The g - 1 members send to
                       their leader, whose link takes them one after another; the leaders form a ring; then the
                       leader sends the sum to its members, at the same cost. Groups work side by side.

        A solver may ask for groups of its own with `group`.
        """
        if not _is_count(num_workers) or num_workers < 1:
            raise ConfigError(f"an all-reduce needs a whole number of workers from 1, got {shown(num_workers)}")
        if group is None and self.allreduce.kind == "ring":
            return self._ring_time(num_bytes, num_workers)
        size = group or self.allreduce.group
        num_leaders = math.ceil(num_workers / size)
        return 2 * (min(size, num_workers) - 1) * self.transfer_time(num_bytes) + self._ring_time(
            num_bytes, num_leaders
        )

    def _ring_time(self, num_bytes: int, num_workers: int) -> float:
        num_steps = 2 * (num_workers - 1)
        return num_steps * self.latency + num_steps * num_bytes / num_workers / self.bandwidth

    def alone(self) -> "Cluster":
        """What a plain loop on one machine takes: the base compute time, no delay, link, server or event.

        The base is the last entry for all workers, or worker 0's where there is none.
        """
        for_all = [entry.distribution for entry in self.compute if entry.workers is None]
        return Cluster(compute=(PerWorker(for_all[-1] if for_all else self.compute_of(0)),))

    def first_join(self, worker: int) -> float:
        """When the worker first appears: 0, unless its first event is a join."""
        check_worker(worker, self.workers, "first_join")
        first = next((event for event in self.events if event.worker == worker), None)
        return first.at if first is not None and first.kind == "join" else 0.0


def _time(value: object, what: str) -> float:
    # Stricter than parse_duration: the value holds seconds, only `parse` reads text.
    if not _is_number(value):
        raise ConfigError(f"{what} must be a finite number of seconds from 0, got {shown(value)}")
    return parse_duration(value, what)


def _listed(value: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise ConfigError(f"{what} must be a list, got {shown(value)}")
    return tuple(value)


def _one_or_more(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _scheduled(row: Any) -> Any:
    """A row with its time read; anything that is not a pair is left for the cluster to refuse."""
    if isinstance(row, tuple | list) and len(row) == 2:
        return parse_duration(row[0], "schedule time"), row[1]
    return row
