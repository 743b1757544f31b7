"""What an all-reduce costs: as a ring, in groups, by halving and doubling, or by the cheapest of them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, get_args

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import shown
from offbeat.engines.cluster.links import Link
from offbeat.engines.cluster.topology import Topology
from offbeat.engines.cluster.validity import is_count

AllReduceKind = Literal["ring", "hierarchical", "halving-doubling", "auto"]

_ALLREDUCE = re.compile(r"\s*([\w-]+)\s*(?:\(\s*([0-9]{1,18})\s*\))?\s*")


@dataclass(frozen=True)
class AllReduceCost:
    """How an all-reduce is carried out: "ring", "hierarchical(8)" with rings among leaders of groups of 8,
    "halving-doubling", or "auto", the cheapest of the three for its size."""

    kind: AllReduceKind = "ring"
    group: int = 8

    def __post_init__(self) -> None:
        if self.kind not in get_args(AllReduceKind):
            raise unknown("allreduce", str(self.kind), get_args(AllReduceKind))
        if not is_count(self.group) or self.group < 1:
            raise ConfigError(f"allreduce group must be a whole number from 1, got {shown(self.group)}")
        if self.kind != "hierarchical":  # no groups: equal costs compare equal
            object.__setattr__(self, "group", 8)

    @classmethod
    def parse(cls, value: object) -> "AllReduceCost":
        if isinstance(value, AllReduceCost):
            return value
        match = _ALLREDUCE.fullmatch(value) if isinstance(value, str) else None
        if match is None or (match[1] in get_args(AllReduceKind) and match[1] != "hierarchical" and match[2]):
            allowed = "'ring', 'hierarchical', 'hierarchical(8)', 'halving-doubling' or 'auto'"
            raise ConfigError(f"allreduce must be {allowed}, got {shown(value)}")
        return cls(match[1], int(match[2] or 8))  # type: ignore[arg-type]  # checked there

    def __str__(self) -> str:
        return f"hierarchical({self.group})" if self.kind == "hierarchical" else self.kind

    def seconds(self, link: Link, num_bytes: int, num_workers: int, group: int | None = None) -> float:
        """An all-reduce of N bytes among W workers, each with a link of its own; 0 for W = 1.

        ring:          2 (W - 1) latency + 2 N (W - 1) / W / bandwidth
                       (W - 1 steps of reduce-scatter and W - 1 of all-gather, N / W bytes each).
        hierarchical:  2 (g - 1) (latency + N / bandwidth) + ring(N, L), with groups of G (the last may be smaller),
                       g = min(G, W) members in the largest group, L = ceil(W / G) leaders. The g - 1 members send to
                       their leader, whose link takes them one after another; the leaders form a ring; then the
                       leader sends the sum to its members, at the same cost. Groups work side by side.
        halving-doubling: 2 k latency + 2 N (P - 1) / P / bandwidth among P = 2^k <= W workers (k steps of N / 2,
                       N / 4, ... bytes, and back); the other W - P first send theirs to a partner, and get the sum from
                       it at the end: 2 (latency + N / bandwidth) more.

        A solver may ask for groups of its own with `group`.
        """
        if not is_count(num_workers) or num_workers < 1:
            raise ConfigError(f"an all-reduce needs a whole number of workers from 1, got {shown(num_workers)}")
        if group is None and self.kind == "ring":
            return _ring(link, num_bytes, num_workers)
        if group is not None or self.kind == "hierarchical":
            return _grouped(link, num_bytes, num_workers, group or self.group)
        halving = _halving(link, num_bytes, num_workers)
        if self.kind == "halving-doubling":
            return halving
        others = _ring(link, num_bytes, num_workers), _grouped(link, num_bytes, num_workers, self.group)
        return min(halving, *others)

    def seconds_on(self, where: Topology, num_bytes: int, members: Sequence[int], group: int | None = None) -> float:
        """The same among workers on nodes, where each step takes what `Topology.step_seconds` says.

        A ring goes from node to node in order, so that one message enters and one leaves each of them. The groups of a
        hierarchical all-reduce are the nodes, unless a solver asks for its own. By halving and doubling, neighbours
        exchange halves first, and the parts that go far are small; but all members of a node send at once.
        """
        if group is None and self.kind == "ring":
            return _ring_on(where, num_bytes, members)
        own = where.groups(members) if group is None else _cut(members, group)
        if group is not None or self.kind == "hierarchical":
            return _grouped_on(where, num_bytes, own)
        halving = _halving_on(where, num_bytes, members)
        if self.kind == "halving-doubling":
            return halving
        return min(halving, _ring_on(where, num_bytes, members), _grouped_on(where, num_bytes, own))


RING = AllReduceCost()

# -- each worker with a link of its own -----------------------------------------------------------------------------


def _ring(link: Link, num_bytes: int, num_workers: int) -> float:
    num_steps = 2 * (num_workers - 1)
    return num_steps * link.latency + num_steps * num_bytes / num_workers / link.bandwidth


def _grouped(link: Link, num_bytes: int, num_workers: int, size: int) -> float:
    num_leaders = math.ceil(num_workers / size)
    within = 2 * (min(size, num_workers) - 1) * link.seconds(num_bytes)
    return within + _ring(link, num_bytes, num_leaders)


def _halving(link: Link, num_bytes: int, num_workers: int) -> float:
    k = num_workers.bit_length() - 1
    among = 1 << k
    takes = 2 * k * link.latency + 2 * num_bytes * (among - 1) / among / link.bandwidth
    return takes if among == num_workers else takes + 2 * link.seconds(num_bytes)


# -- workers on nodes -------------------------------------------------------------------------------------------------


def _ring_on(where: Topology, num_bytes: int, members: Sequence[int]) -> float:
    W = len(members)
    if W < 2:
        return 0.0
    around = [(i, members[(k + 1) % W]) for k, i in enumerate(members)]
    return 2 * (W - 1) * where.step_seconds(around, num_bytes / W)


def _grouped_on(where: Topology, num_bytes: int, groups: Sequence[Sequence[int]]) -> float:
    within = 0.0
    for senders in zip_longest(*(group[1:] for group in groups)):
        pairs = [(i, group[0]) for i, group in zip(senders, groups, strict=True) if i is not None]
        within += where.step_seconds(pairs, num_bytes)
    return 2 * within + _ring_on(where, num_bytes, [group[0] for group in groups])


def _halving_on(where: Topology, num_bytes: int, members: Sequence[int]) -> float:
    k = len(members).bit_length() - 1
    among = 1 << k
    takes = 0.0
    for step in range(k):
        pairs = [(members[i], members[i ^ (1 << step)]) for i in range(among)]
        takes += 2 * where.step_seconds(pairs, num_bytes / 2 ** (step + 1))
    others = [(members[i], members[i - among]) for i in range(among, len(members))]
    return takes + 2 * where.step_seconds(others, num_bytes)


def _cut(members: Sequence[int], size: int) -> list[Sequence[int]]:
    return [members[k : k + size] for k in range(0, len(members), size)]
