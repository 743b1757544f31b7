"""The cluster as a value: how long workers compute, how fast links and server are, who joins and who is lost.

value          the settings together, and what follows from them
spelling       how people write each of them
distributions  times that vary
batch_times    times of a batch, by its size, or recorded
per_worker     times that differ from worker to worker
crowding       what shares the cores of a machine
speed          faster and slower machines, spells of slowness
events         joins, losses and schedules
losses         losses at random, and returns
server         the server's own link, and its shards
links          messages between two
topology       nodes, racks and their links
reduction_cost rings, groups, halving and doubling
"""

from offbeat.engines.cluster.batch_times import PerSample
from offbeat.engines.cluster.events import Event, EventKind
from offbeat.engines.cluster.links import Link, PeerLatency
from offbeat.engines.cluster.losses import Loss
from offbeat.engines.cluster.per_worker import PerWorker
from offbeat.engines.cluster.rates import UNLIMITED
from offbeat.engines.cluster.recorded import RecordedTimes
from offbeat.engines.cluster.reduction_cost import AllReduceCost, AllReduceKind
from offbeat.engines.cluster.server import ServerMachine
from offbeat.engines.cluster.speed import Slowness, Speed
from offbeat.engines.cluster.spelling import SECTIONS
from offbeat.engines.cluster.topology import Links
from offbeat.engines.cluster.validity import MOST_WORKERS
from offbeat.engines.cluster.value import Cluster

__all__ = [
    "MOST_WORKERS",
    "SECTIONS",
    "UNLIMITED",
    "AllReduceCost",
    "AllReduceKind",
    "Cluster",
    "Event",
    "EventKind",
    "Link",
    "Links",
    "Loss",
    "PeerLatency",
    "PerSample",
    "PerWorker",
    "RecordedTimes",
    "ServerMachine",
    "Slowness",
    "Speed",
]
