"""The cluster as a value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.seeds import Dial, Draws, PlacedDraws
from offbeat.core.units import check_worker, shown
from offbeat.engines.cluster import spelling
from offbeat.engines.cluster.batch_times import BatchTime, Sizes, block_of, mean_of
from offbeat.engines.cluster.crowding import CoresFor, check_cores
from offbeat.engines.cluster.distributions import ZERO, Constant, Distribution
from offbeat.engines.cluster.events import Event, Schedule, checked_events, checked_schedule
from offbeat.engines.cluster.links import Link, PeerLatency
from offbeat.engines.cluster.losses import Loss, checked_losses
from offbeat.engines.cluster.named import ByWorker
from offbeat.engines.cluster.per_worker import PerWorker, check_everybody_has_a_time, checked_times
from offbeat.engines.cluster.recorded import RecordedTimes
from offbeat.engines.cluster.reduction_cost import RING, AllReduceCost
from offbeat.engines.cluster.server import ONE_SERVER, ServerMachine
from offbeat.engines.cluster.speed import Slowness, Speed, checked_factors
from offbeat.engines.cluster.topology import NO_LINKS, Links, Topology, check_topology
from offbeat.engines.cluster.validity import bandwidth, check_count_of_workers, seconds


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
    server -- the server's own link, shared by all messages, and its shards (unlimited, one)
    speed -- how many times as fast a worker computes; the last entry for a worker counts (1)
    slow -- how many times as slow, for good or for spells of time; entries for a worker multiply (none)
    cores -- of each node, shared by those of its workers that compute (one for each worker)
    cores_for -- what needs one of them: "computing", or "everything" that happens on one machine, messages, sums,
        passes over memory and the server, too (computing)
    slice -- seconds for which one keeps a core while others wait for it (0: equal shares at every moment)
    loss -- workers that are lost at random, and come back (none)
    nodes -- how many machines the workers are on, in order and as evenly as it goes (each on its own)
    racks -- how many racks the nodes are in (one)
    link -- latency and bandwidth inside a node, between nodes and between racks (those of a worker's link)
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
    server: ServerMachine = ONE_SERVER
    speed: tuple[Speed, ...] = ()
    slow: tuple[Slowness, ...] = ()
    cores: int | None = None
    cores_for: CoresFor = "computing"
    slice: Distribution = ZERO
    loss: tuple[Loss, ...] = ()
    nodes: int | None = None
    racks: int | None = None
    link: Links = NO_LINKS

    def __post_init__(self) -> None:
        check_count_of_workers(self.workers)
        self._set("compute", checked_times(self.compute, self.workers, "compute"))
        self._set("delay", checked_times(self.delay, self.workers, "delay"))
        check_everybody_has_a_time(self.compute, self.workers)
        self._set("latency", seconds(self.latency, "latency"))
        self._set("bandwidth", bandwidth(self.bandwidth, "bandwidth"))
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
        self._check_machines()

    def _check_machines(self) -> None:
        for name, kind in (("server", ServerMachine), ("link", Links)):
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"{name} must be a {kind.__name__}, got {shown(getattr(self, name))}")
        if self.server.shards > 1 and self.server.bandwidth == math.inf and self.service == ZERO:
            raise ConfigError(
                f"server.shards has no effect without server.bandwidth or service, got {self.server.shards}"
            )
        self._set("speed", checked_factors(self.speed, Speed, self.workers, "speed"))
        self._set("slow", checked_factors(self.slow, Slowness, self.workers, "slow"))
        check_cores(self.cores, self.cores_for, self.slice)
        if self.cores_for == "everything" and (self.server != ONE_SERVER or (self.nodes or 1) > 1):
            other = "server" if self.server != ONE_SERVER else "nodes"
            raise ConfigError(
                f"cores_for = 'everything' is one machine, server and all: {other} has no place beside it"
            )
        self._set("loss", checked_losses(self.loss, self.events, self.workers))
        check_topology(self.workers, self.nodes, self.racks, self.link)
        for entry in self.compute:
            if isinstance(entry.distribution, RecordedTimes) and entry.distribution.at_hand:
                entry.distribution.check_columns(self.workers if entry.workers is None else len(entry.workers))
        if self.schedule is not None:
            for name in ("speed", "slow", "cores"):
                if getattr(self, name):
                    raise ConfigError(f"schedule says when every gradient is finished: {name} has no effect beside it")

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

    @cached_property
    def _by_worker(self) -> dict[str, ByWorker[Any]]:
        return {name: ByWorker(getattr(self, name)) for name in ("compute", "delay", "speed", "slow")}

    @cached_property
    def _first_events(self) -> dict[int, Event]:
        return {event.worker: event for event in reversed(self.events)}

    # -- times ----------------------------------------------------------------------------------------------------

    def compute_of(self, worker: int) -> BatchTime:
        """The time of one batch on this worker, before its speed: the last entry that applies."""
        return self._compute_entry(worker).distribution

    def _compute_entry(self, worker: int) -> PerWorker:
        check_worker(worker, self.workers, "compute")
        found: PerWorker | None = self._by_worker["compute"].last(worker)
        assert found is not None  # everybody has a time
        return found

    def column_of(self, worker: int) -> int:
        """Which column of a recording is this worker's: its place among those that the entry names."""
        named = self._compute_entry(worker).workers
        return worker if named is None else named.index(worker)

    def speed_of(self, worker: int) -> float:
        check_worker(worker, self.workers, "speed")
        found = self._by_worker["speed"].last(worker)
        return 1.0 if found is None else found.factor

    def slowness_of(self, worker: int) -> tuple[tuple[int, Slowness], ...]:
        """The entries that apply to this worker, each with its number."""
        check_worker(worker, self.workers, "slow")
        return tuple(self._by_worker["slow"].of(worker))

    def draw_times(self, worker: int, sizes: Sizes, *, seed: int, dial: Dial | None = None) -> Draws:
        """How long this worker's batches take, one after another, with a core of its own and without slowness."""
        time, speed = self.compute_of(worker), self.speed_of(worker)
        where: dict[str, Any] = {"seed": seed, "stream": "compute", "source": worker, "dial": dial}
        if isinstance(time, Distribution) and speed == 1.0:
            return Draws(time.sample, **where)
        column = self.column_of(worker) if isinstance(time, RecordedTimes) else 0
        return PlacedDraws(lambda rng, first, n: block_of(time, rng, (first, n), sizes, column) / speed, **where)

    def mean_compute(self, worker: int, batch: float) -> float:
        """Expected seconds of a batch on this worker, with a core of its own; of slowness, what it costs on average."""
        takes = mean_of(self.compute_of(worker), batch) / self.speed_of(worker)
        for _, slow in self.slowness_of(worker):
            takes /= 1.0 - slow.share + slow.share / slow.factor
        return takes

    def delays_of(self, worker: int) -> tuple[Distribution, ...]:
        """The extra delays of one batch on this worker, to be added up."""
        check_worker(worker, self.workers, "delay")
        return tuple(entry.distribution for _, entry in self._by_worker["delay"].of(worker))

    def node_of(self, worker: int) -> int:
        """The machine whose cores a worker shares; without `nodes`, all are on one."""
        return 0 if self.nodes is None else self.topology.node_of(worker)

    def first_join(self, worker: int) -> float:
        """When the worker first appears: 0, unless its first event is a join."""
        check_worker(worker, self.workers, "first_join")
        first = self._first_events.get(worker)
        return first.at if first is not None and first.kind == "join" else 0.0

    # -- messages -------------------------------------------------------------------------------------------------

    def transfer_time(self, num_bytes: int) -> float:
        """One message over one link: latency + N / bandwidth."""
        return self.latency + num_bytes / self.bandwidth

    def peer_time(self, i: int, j: int, num_bytes: int) -> float:
        """One message between two workers; the last entry of `peers` that applies, else the common latency."""
        passed = Link(self.latency, self.bandwidth) if self.nodes is None else self.topology.link(i, j)
        latency = next((p.latency for p in reversed(self.peers) if p.applies_to(i, j)), passed.latency)
        return latency + num_bytes / passed.bandwidth

    def allreduce_time(
        self, num_bytes: int, num_workers: int, group: int | None = None, members: Sequence[int] | None = None
    ) -> float:
        """An all-reduce of so many bytes among so many workers, in groups of its own if a solver asks for them.

        Where the workers are on nodes it counts who they are: `members`, the first ones unless given.
        """
        if self.nodes is None or num_workers < 1:
            return self.allreduce.seconds(Link(self.latency, self.bandwidth), num_bytes, num_workers, group)
        return self.allreduce.seconds_on(self.topology, num_bytes, members or range(num_workers), group)

    @cached_property
    def topology(self) -> Topology:
        """Where workers sit; each on a node of its own unless `nodes` says otherwise."""
        usual = Link(self.latency, self.bandwidth)
        between = self.link.between or usual
        nodes = self.workers if self.nodes is None else self.nodes
        return Topology(
            self.workers, nodes, self.racks or 1, self.link.inside or usual, between, self.link.racks or between
        )

    def alone(self) -> "Cluster":
        """What a plain loop on one machine takes: the base compute time, no delay, link, server or event.

        The base is the last entry for all workers, or worker 0's where there is none.
        """
        for_all = [entry.distribution for entry in self.compute if entry.workers is None]
        return Cluster(compute=(PerWorker(for_all[-1] if for_all else self.compute_of(0)),))
