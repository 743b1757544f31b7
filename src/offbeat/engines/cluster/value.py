"""The cluster as a value."""

import math
from dataclasses import dataclass
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.units import check_worker, parse_rate, shown
from offbeat.engines.cluster import spelling
from offbeat.engines.cluster.distributions import ZERO, Constant, Distribution
from offbeat.engines.cluster.events import Event, Schedule, arrival, checked_events, checked_schedule
from offbeat.engines.cluster.links import RING, AllReduceCost, Link, PeerLatency
from offbeat.engines.cluster.per_worker import PerWorker, check_everybody_has_a_time, checked_times
from offbeat.engines.cluster.validity import check_count_of_workers, is_number, seconds


@dataclass(frozen=True)
class Cluster:
    """Workers 0 ... workers - 1, their times, links, server, joins and losses.

    Each setting, with the default in brackets; `Cluster.parse` takes them as text.

    workers -- how many there are, with those that join later (1)
    compute -- seconds for one batch; a later entry overrides earlier ones for its workers (10 ms for everybody)
    delay -- seconds on top of it; entries that name the same worker add up (none)
    latency -- seconds of a message over a worker's link, each way (0)
    bandwidth -- bytes per second of a worker's link (unlimited)
    service -- seconds of the server for each message, one at a time, first come first served (0)
    allreduce -- how workers add up among themselves: a ring, or rings among leaders of groups (ring)
    events -- who joins and who is lost, and when; a worker whose first event is a join is absent until then (none)
    peers -- latency between two workers that talk to each other; the last entry that applies (`latency`)
    memory -- seconds of one pass over a shared vector (0)
    feeder -- seconds that a node which makes batches takes for each, before a worker can begin with it (0: every
        worker has its data at hand)
    schedule -- (finish time, worker) of every gradient in order, instead of compute and delay (none)
    """

    workers: int = 1
    compute: tuple[PerWorker, ...] = (PerWorker(Constant(0.01)),)
    delay: tuple[PerWorker, ...] = ()
    latency: float = 0.0
    bandwidth: float = math.inf
    service: Distribution = ZERO
    allreduce: AllReduceCost = RING
    events: tuple[Event, ...] = ()
    peers: tuple[PeerLatency, ...] = ()
    memory: float = 0.0
    feeder: Distribution = ZERO
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        check_count_of_workers(self.workers)
        self._set("compute", checked_times(self.compute, self.workers, "compute"))
        self._set("delay", checked_times(self.delay, self.workers, "delay"))
        check_everybody_has_a_time(self.compute, self.workers)
        self._set("latency", seconds(self.latency, "latency"))
        if not is_number(self.bandwidth) or not self.bandwidth > 0:
            raise ConfigError(f"bandwidth must be above 0 bytes per second, got {shown(self.bandwidth)}")
        if self.bandwidth != math.inf:
            self._set("bandwidth", parse_rate(self.bandwidth, "bandwidth"))
        if not isinstance(self.service, Distribution):
            raise ConfigError(f"service must be a distribution, got {shown(self.service)}")
        if not isinstance(self.allreduce, AllReduceCost):
            raise ConfigError(f"allreduce must be an AllReduceCost, got {shown(self.allreduce)}")
        self._set("memory", seconds(self.memory, "memory"))
        if not isinstance(self.feeder, Distribution):
            raise ConfigError(f"feeder must be a distribution, got {shown(self.feeder)}")
        self._set("events", checked_events(self.events, self.workers))
        if self.schedule is not None:
            self._set("schedule", checked_schedule(self.schedule, self.workers))

    def _set(self, name: str, checked: Any) -> None:
        """While it is being made: afterwards it is frozen."""
        object.__setattr__(self, name, checked)

    @classmethod
    def parse(cls, **values: Any) -> "Cluster":
        """A cluster from plain JSON or TOML values: `Cluster.parse(workers=8, compute="normal(10ms, 2ms)")`."""
        return cls(**spelling.read(values))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values that `Cluster.parse(**values)` reads back to an equal cluster."""
        return spelling.written(self)

    # -- times ----------------------------------------------------------------------------------------------------

    def compute_of(self, worker: int) -> Distribution:
        """The time of one batch on this worker: the last entry that applies."""
        check_worker(worker, self.workers, "compute")
        return next(entry.distribution for entry in reversed(self.compute) if entry.applies_to(worker))

    def delays_of(self, worker: int) -> tuple[Distribution, ...]:
        """The extra delays of one batch on this worker, to be added up."""
        check_worker(worker, self.workers, "delay")
        return tuple(entry.distribution for entry in self.delay if entry.applies_to(worker))

    def first_join(self, worker: int) -> float:
        """When the worker first appears: 0, unless its first event is a join."""
        check_worker(worker, self.workers, "first_join")
        return arrival(self.events, worker)

    # -- messages -------------------------------------------------------------------------------------------------

    def transfer_time(self, num_bytes: int) -> float:
        """One message over one link: latency + N / bandwidth."""
        return self.latency + num_bytes / self.bandwidth

    def peer_time(self, i: int, j: int, num_bytes: int) -> float:
        """One message between two workers; the last entry of `peers` that applies, else the common latency."""
        latency = next((p.latency for p in reversed(self.peers) if p.applies_to(i, j)), self.latency)
        return latency + num_bytes / self.bandwidth

    def allreduce_time(self, num_bytes: int, num_workers: int, group: int | None = None) -> float:
        """An all-reduce of so many bytes among so many workers, in groups of its own if a solver asks for them."""
        return self.allreduce.seconds(Link(self.latency, self.bandwidth), num_bytes, num_workers, group)

    def alone(self) -> "Cluster":
        """What a plain loop on one machine takes: the base compute time, no delay, link, server or event.

        The base is the last entry for all workers, or worker 0's where there is none.
        """
        for_all = [entry.distribution for entry in self.compute if entry.workers is None]
        return Cluster(compute=(PerWorker(for_all[-1] if for_all else self.compute_of(0)),))
