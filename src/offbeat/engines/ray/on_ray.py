"""The ray engine: the same rules on the processes of a Ray cluster, on the wall clock."""

from dataclasses import replace
from typing import ClassVar

import torch.distributed

from offbeat.core.effects import EVERY_REQUEST, AllReduce
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver
from offbeat.core.sparse import dense
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray.crew import Crew
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.ray.ray_processes import RayProcesses
from offbeat.engines.ray.remote_board import RemoteBoard
from offbeat.engines.real.control import RealEngine
from offbeat.engines.real.in_place import needs_one_machine
from offbeat.engines.real.site import Maker, Options, Setup, Site, check_cluster
from offbeat.engines.running.fit import uncuttable

NO_GAP = "the gap (record.gap) was not recorded: with ray.shards, every gradient would wait for a norm"


class OnRay(RealEngine):
    """One run on a Ray cluster: construct (or restore), then `run()`.

    Args:
        task, solver, cluster, feed: what is run, and on what. Of the cluster, only delays and events are used.
        seed: of everything random.
        threads: how many evaluate.
        options: what happens when a process is lost, and the like.
        ray: where the processes are placed, and how their bytes travel.
        maker: how the task is made anew in other processes; None: it is sent to them.
        crew: processes that are there already, for many runs; None: they are started for this run.
    """

    name: ClassVar[str] = "ray"
    asks: ClassVar[frozenset[type]] = EVERY_REQUEST

    def __init__(
        self,
        task: Task,
        solver: Solver,
        cluster: Cluster,
        feed: Feed,
        *,
        seed: int,
        threads: int = 0,
        options: Options | None = None,
        ray: RayOptions | None = None,
        maker: Maker | None = None,
        crew: Crew | None = None,
    ) -> None:
        options, ray = options or Options(), ray or RayOptions()
        if (reason := why_not_so(ray, solver, task)) is not None:
            raise ConfigError(f"{type(solver).__name__} cannot run {reason}")
        if ray.shared_memory == "off" and needs_one_machine(solver):
            raise ConfigError(
                f"{type(solver).__name__} needs memory that all workers share: leave ray.shared_memory out"
            )
        gap, options = options.gap, replace(options, gap=options.gap and ray.shards == 1)
        super().__init__(task, solver, cluster, feed, seed=seed, threads=threads, options=options)
        if gap and not options.gap:
            self.incidents.append(NO_GAP)
        check_cluster(cluster, self.name)
        board = RemoteBoard(cluster.workers, dense(self.initial.x))
        setup = Setup(solver, cluster, feed, seed, options, task, maker)
        site = Site(setup, task, self.initial, board)
        sent = replace(setup, task=None) if maker else setup
        self.processes = RayProcesses(sent, site, board, ray, crew, lambda what: self.incidents.append(what))


def why_not_so(ray: RayOptions, solver: Solver, task: Task) -> str | None:
    """What of these options does not go with this solver and task, and why; None where all does."""
    if (reason := why_not_in_parts(ray, solver, task)) is not None:
        return f"with ray.shards={ray.shards}: {reason}"
    if (reason := why_not_among_workers(ray, solver, task)) is not None:
        return f"with ray.allreduce={ray.allreduce}: {reason}"
    return None


def why_not_among_workers(ray: RayOptions, solver: Solver, task: Task) -> str | None:
    """Why the workers of this run cannot sum among themselves; None where they can, or the server does."""
    if ray.allreduce == "server":
        return None
    if AllReduce not in solver.asks:
        return "it has no effect, as there is no all-reduce in it: leave it out"
    if ray.transport == "actor":
        return "gloo opens ports of its own, and with ray.transport=actor there are only those of Ray"
    if ray.encryption == "on":
        return "gloo does not encrypt, and ray.encryption=on asks for it"
    if getattr(task, "row_sparse", False):
        return f"the gradients of task {task.name!r} are rows of a table"
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        return "this torch was built without it"
    return None


def why_not_in_parts(ray: RayOptions, solver: Solver, task: Task) -> str | None:
    """Why the server of this run cannot lie in parts; None where it can, or is in one place."""
    if ray.shards == 1:
        return None
    if ray.transport == "actor":
        return "shards are reached over sockets of our own (ray.transport=zmq)"
    if getattr(task, "row_sparse", False):
        return f"the gradients of task {task.name!r} are rows of a table"
    return uncuttable(solver)
