"""How a run is placed on a Ray cluster, and how its bytes travel there."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RayOptions:
    """What only the ray engine needs to know.

    Args:
        address: of a running cluster (`host:port`, or "auto" for the one this machine belongs to); None starts a Ray on
            this machine, which listens on the loopback alone, and ends it with the run.
        transport: "zmq" sends vectors over sockets of our own; "actor" through Ray's calls, if only its ports are open.
        encryption: "on", "off", or "auto": when messages cross hosts. Every message is authenticated in any case.
        shared_memory: "auto": vectors of workers on the server's machine go through memory; "off": nobody's do.
        allreduce: who sums where workers meet in an all-reduce: "server", or "gloo": the workers among themselves, over
            connections of torch.distributed, which are neither encrypted nor authenticated.
        shards: in how many parts the server's vectors lie, each in a process of its own; 1: they are in one place.
        cpus, gpus: what Ray sets aside for each worker.
        server_cpus: and for the server, and for each of its shards.
        server: where the server is placed: "driver" (the machine that this process runs on), "any", or an address.
        wait_seconds: how long we wait for places before we give up.
    """

    address: str | None = None
    transport: Literal["zmq", "actor"] = "zmq"
    encryption: Literal["auto", "on", "off"] = "auto"
    shared_memory: Literal["auto", "off"] = "auto"
    allreduce: Literal["server", "gloo"] = "server"
    shards: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    server_cpus: float = 0.0
    server: str = "driver"
    wait_seconds: float = 60.0
