"""The cluster as a value: how long workers compute, how fast links and server are, who joins and who is lost.

value          the settings together, and what follows from them
spelling       how people write each of them
distributions  times that vary
per_worker     times that differ from worker to worker
events         joins, losses and schedules
links          messages, rings and groups
"""

from offbeat.engines.cluster.events import Event, EventKind
from offbeat.engines.cluster.links import AllReduceCost, AllReduceKind, PeerLatency
from offbeat.engines.cluster.per_worker import PerWorker
from offbeat.engines.cluster.spelling import UNLIMITED
from offbeat.engines.cluster.validity import MOST_WORKERS
from offbeat.engines.cluster.value import Cluster

__all__ = [
    "MOST_WORKERS",
    "UNLIMITED",
    "AllReduceCost",
    "AllReduceKind",
    "Cluster",
    "Event",
    "EventKind",
    "PeerLatency",
    "PerWorker",
]
