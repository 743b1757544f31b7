"""What is in the way: each part of a cluster is made free in turn, and the one that brings most is the reason."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean

from offbeat.engines.cluster import Cluster, PerWorker, ServerMachine
from offbeat.engines.cluster.distributions import ZERO, Constant
from offbeat.engines.cluster.topology import NO_LINKS

NOTHING = "nothing in particular"
_TELLS = 1.1  # a part that brings less than this factor is no reason


def reason(cluster: Cluster, rate: float, run: Callable[[Cluster], float], batch: int = 1) -> tuple[str, float]:
    """The part without which throughput would be highest, and how many times as high it would be.

    `rate` is the throughput of the cluster as it is, `run` gives that of another one.
    """
    found = [(run(freed) / rate if rate else math.inf, name) for name, freed in without_each(cluster, batch)]
    gain, name = max(found, default=(1.0, NOTHING))
    if gain < _TELLS:
        together = run(only_computing(cluster)) / rate if rate else math.inf
        return ("links and server together", together) if together >= _TELLS else (NOTHING, 1.0)
    return name, gain


def without_each(cluster: Cluster, batch: int = 1) -> Iterator[tuple[str, Cluster]]:
    """The cluster without one of its parts, for each that it has."""
    if cluster.server.bandwidth < math.inf:
        yield "the server's link", replace(cluster, server=_unlimited(cluster))
    if cluster.service.mean > 0:
        yield "service (the server's time for each message)", _with_server(replace(cluster, service=ZERO))
    if cluster.bandwidth < math.inf:
        yield "the bandwidth of each worker's link", replace(cluster, bandwidth=math.inf)
    if cluster.latency > 0 or cluster.peers:
        yield "latency", replace(cluster, latency=0.0, peers=())
    if cluster.link != NO_LINKS:
        yield "the links of nodes and racks", replace(cluster, link=NO_LINKS, latency=0.0, bandwidth=math.inf)
    if cluster.feeder.mean > 0:
        yield "the feeder (one node that makes all batches)", replace(cluster, feeder=ZERO)
    if cluster.memory > 0:
        yield "the passes over shared memory", replace(cluster, memory=0.0)
    if cluster.cores is not None:
        yield "the cores, which workers share", replace(cluster, cores=None, cores_for="computing", slice=ZERO)
    if cluster.loss:
        yield "losses", replace(cluster, loss=())
    even = in_step(cluster, batch)
    if even != cluster:
        yield "the barrier (everybody waits for the slowest)", even


def _unlimited(cluster: Cluster) -> ServerMachine:
    """Shards are kept where they still count: for service."""
    return ServerMachine(shards=cluster.server.shards if cluster.service.mean > 0 else 1)


def _with_server(cluster: Cluster) -> Cluster:
    return replace(cluster, server=ServerMachine()) if cluster.server.bandwidth == math.inf else cluster


def only_computing(cluster: Cluster) -> Cluster:
    """The same workers, as if messages, server and feeder took no time."""
    free = {"service": ZERO, "feeder": ZERO, "latency": 0.0, "bandwidth": math.inf, "memory": 0.0, "peers": ()}
    return replace(cluster, **free, server=ServerMachine(), link=NO_LINKS)  # type: ignore[arg-type]


def in_step(cluster: Cluster, batch: int = 1) -> Cluster:
    """Everybody always takes the same time for a batch: the mean of all."""
    takes = [cluster.mean_compute(i, batch) + sum(d.mean for d in cluster.delays_of(i)) for i in range(cluster.workers)]
    if not all(map(math.isfinite, takes)):
        return cluster
    return replace(cluster, compute=(PerWorker(Constant(fmean(takes))),), delay=(), speed=(), slow=())
