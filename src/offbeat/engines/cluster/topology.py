"""Who sits where: workers on nodes, nodes in racks, and the links at each level."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import shown
from offbeat.engines.cluster.links import Link
from offbeat.engines.cluster.validity import is_count


@dataclass(frozen=True)
class Links:
    """inside -- between two workers of one node; between -- from node to node; racks -- from rack to rack."""

    inside: Link | None = None
    between: Link | None = None
    racks: Link | None = None

    @classmethod
    def parse(cls, value: object) -> "Links":
        if isinstance(value, Links):
            return value
        if not isinstance(value, Mapping):
            raise ConfigError(f"link must be a section with keys, such as link.between, got {shown(value)}")
        for name in value:
            if name not in cls.__dataclass_fields__:
                raise unknown("cluster setting", f"link.{name}", [f"link.{n}" for n in cls.__dataclass_fields__])
        return cls(**{name: Link.parse(text, f"link.{name}") for name, text in value.items()})

    def written(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in type(self).__dataclass_fields__}
        return {name: str(link) for name, link in own.items() if link is not None}


NO_LINKS = Links()


class Topology(NamedTuple):
    """Workers in nodes and racks, in order, as evenly as it goes; the links where messages pass."""

    workers: int
    nodes: int
    racks: int
    inside: Link
    between: Link
    across: Link

    def node_of(self, worker: int) -> int:
        return worker * self.nodes // self.workers

    def rack_of(self, worker: int) -> int:
        return self.node_of(worker) * self.racks // self.nodes

    def link(self, i: int, j: int) -> Link:
        """What a message from worker to worker passes."""
        if self.node_of(i) == self.node_of(j):
            return self.inside
        return self.between if self.rack_of(i) == self.rack_of(j) else self.across

    def step_seconds(self, pairs: Sequence[tuple[int, int]], num_bytes: float) -> float:
        """Each sends so many bytes to the other of its pair, all at the same time.

        What leaves or enters a node shares that node's link, and what leaves or enters a rack that rack's.
        """
        flows: Counter[tuple[str, int]] = Counter()
        passed = []
        for i, j in pairs:
            path: list[tuple[str, int]] = []
            if (a := self.node_of(i)) != (b := self.node_of(j)):
                path += [("out", a), ("in", b)]
            if (c := self.rack_of(i)) != (d := self.rack_of(j)):
                path += [("up", c), ("down", d)]
            flows.update(path)
            passed.append((self.link(i, j).latency, path))
        slowest = 0.0
        for latency, path in passed:
            takes = 0.0 if path else num_bytes / self.inside.bandwidth
            for place in path:
                link = self.between if place[0] in ("out", "in") else self.across
                takes = max(takes, flows[place] * num_bytes / link.bandwidth)
            slowest = max(slowest, latency + takes)
        return slowest

    def groups(self, members: Sequence[int]) -> list[list[int]]:
        """The members by node."""
        found: dict[int, list[int]] = {}
        for i in members:
            found.setdefault(self.node_of(i), []).append(i)
        return list(found.values())


def check_topology(workers: int, nodes: int | None, racks: int | None, links: Links) -> None:
    for what, value, most, of in (("nodes", nodes, workers, "workers"), ("racks", racks, nodes, "nodes")):
        if value is None:
            continue
        if not is_count(value) or value < 1:
            raise ConfigError(f"{what} must be a whole number from 1, got {shown(value)}")
        if most is None:
            raise ConfigError(f"{what} needs {of}: say on how many machines the workers are, got racks={value}")
        if value > most:
            raise ConfigError(f"{what} must be at most the number of {of}, {most}, got {value}")
    if nodes is None and links != NO_LINKS:
        name = next(iter(links.written()))
        raise ConfigError(f"link.{name} needs nodes: say on how many machines the workers are")
    if racks is None and links.racks is not None:
        raise ConfigError("link.racks needs racks: say in how many of them the nodes are")
