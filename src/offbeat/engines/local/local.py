"""The local engine: the same rules on real processes of one machine, on the wall clock."""

from typing import ClassVar

from offbeat.core.effects import EVERY_REQUEST
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver
from offbeat.core.sparse import dense
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster
from offbeat.engines.local import arena
from offbeat.engines.local.launcher import Launcher
from offbeat.engines.local.processes import LocalProcesses
from offbeat.engines.real.control import RealEngine
from offbeat.engines.real.machine import check_files
from offbeat.engines.real.site import Maker, Options, Setup, check_cluster


class Local(RealEngine):
    """One run on real processes of this machine: construct (or restore), then `run()`.

    Args:
        task, solver, cluster, feed: what is run, and on what. Of the cluster, only delays and events are used.
        seed: of everything random.
        threads: how many evaluate.
        options: what happens when a process is lost, and the like.
        maker: how the task is made anew in other processes; None: it is sent to them.
        launcher: a process that has imported torch already, for many runs; None: one is started for this run.
    """

    name: ClassVar[str] = "local"
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
        maker: Maker | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        options = options or Options()
        super().__init__(task, solver, cluster, feed, seed=seed, threads=threads, options=options)
        check_cluster(cluster, self.name)
        check_files(cluster.workers)
        x0, buffers = dense(self.initial.x), self.initial.buffers
        self.arena = arena.create(arena.shape_of(cluster.workers, x0, buffers))
        sent = None if maker else task
        setup = Setup(solver, cluster, feed, seed, options, sent, maker)
        self.processes = LocalProcesses(setup, task.name, self.arena, launcher)
