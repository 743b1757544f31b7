"""What messages cost: over one link, between two workers, among all of them."""

import math
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import format_duration, format_workers, parse_duration, parse_workers, shown
from offbeat.engines.cluster.validity import is_count

AllReduceKind = Literal["ring", "hierarchical"]

_ALLREDUCE = re.compile(r"\s*(\w+)\s*(?:\(\s*([0-9]{1,18})\s*\))?\s*")


class Link(NamedTuple):
    """A worker's link: seconds each way, and bytes per second."""

    latency: float
    bandwidth: float

    def seconds(self, num_bytes: int) -> float:
        """One message: latency + N / bandwidth."""
        return self.latency + num_bytes / self.bandwidth

    def ring_seconds(self, num_bytes: int, num_workers: int) -> float:
        num_steps = 2 * (num_workers - 1)
        return num_steps * self.latency + num_steps * num_bytes / num_workers / self.bandwidth


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
class AllReduceCost:
    """How an all-reduce is carried out: "ring", or "hierarchical(8)" with rings among leaders of groups of 8."""

    kind: AllReduceKind = "ring"
    group: int = 8

    def __post_init__(self) -> None:
        if self.kind not in get_args(AllReduceKind):
            raise unknown("allreduce", str(self.kind), get_args(AllReduceKind))
        if not is_count(self.group) or self.group < 1:
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

    def seconds(self, link: Link, num_bytes: int, num_workers: int, group: int | None = None) -> float:
        """An all-reduce of N bytes among W workers, 0 for W = 1.

        ring:          2 (W - 1) latency + 2 N (W - 1) / W / bandwidth
                       (W - 1 steps of reduce-scatter and W - 1 of all-gather, N / W bytes each).
        hierarchical:  2 (g - 1) (latency + N / bandwidth) + ring(N, L), with groups of G (the last may be smaller),
                       g = min(G, W) members in the largest group, L = ceil(W / G) leaders. The g - 1 members send to
                       their leader, whose link takes them one after another; the leaders form a ring; then the
                       leader sends the sum to its members, at the same cost. Groups work side by side.

        A solver may ask for groups of its own with `group`.
        """
        if not is_count(num_workers) or num_workers < 1:
            raise ConfigError(f"an all-reduce needs a whole number of workers from 1, got {shown(num_workers)}")
        if group is None and self.kind == "ring":
            return link.ring_seconds(num_bytes, num_workers)
        size = group or self.group
        num_leaders = math.ceil(num_workers / size)
        within = 2 * (min(size, num_workers) - 1) * link.seconds(num_bytes)
        return within + link.ring_seconds(num_bytes, num_leaders)


RING = AllReduceCost()
