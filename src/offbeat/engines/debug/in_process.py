"""The debug engine: the loops of the real engines in threads of this process. Breakpoints work, errors say where."""

from contextlib import suppress
from dataclasses import replace
from math import inf
from threading import Thread
from typing import Any, ClassVar

from offbeat.core.effects import EVERY_REQUEST, Lock, Mix, SharedAdd, SharedRead, Unlock
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver
from offbeat.core.sparse import RowTable, dense
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster
from offbeat.engines.debug.still import Inbox, Killed
from offbeat.engines.debug.thread_hub import ThreadHub, ThreadLine
from offbeat.engines.debug.thread_port import ThreadPort
from offbeat.engines.debug.where import RuleFailedError, where_server, where_worker
from offbeat.engines.real import messages as m
from offbeat.engines.real.board import Board
from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker
from offbeat.engines.real.control import RealEngine
from offbeat.engines.real.own_board import OwnBoard
from offbeat.engines.real.server_loop import ServerLoop
from offbeat.engines.real.site import Options, Setup, Site, check_cluster
from offbeat.engines.real.transport import Came, Closed, Said, WentAway
from offbeat.engines.real.worker_loop import WorkerLoop

_END_SECONDS = 10.0  # for a thread to notice that it is over


class ThreadProcesses:
    """Starts threads where other engines start processes."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.board: Board = site.board
        self.error: RuleFailedError | None = None
        """The first exception of a thread, with where it came from."""
        self._hub: ThreadHub | None = None
        self._threads: list[Thread] = []
        self._exits: dict[tuple[str, int], str] = {}

    def open(self) -> None:
        """There is nothing to make: the task is here."""

    def start_server(self, saved: Checkpoint | None, life: int, totals: m.Totals) -> ThreadLine:
        control = Inbox()
        hub = self._hub = ThreadHub(self.site, control)

        def serve() -> None:
            server = None
            try:
                server = ServerLoop(self.site, hub, saved, life, totals)
                server.run()
            except Killed:
                self._exits["server", -1] = "killed"
            except BaseException as e:
                self.error = self.error or where_server(server, e)
                control.put(m.ProcessFailed(-1, f"{type(e).__name__}: {e}"))
            finally:
                control.close()

        self._start(serve, f"server {life}")
        return ThreadLine(hub, control)

    def start_worker(self, rank: int, life: int, how: str, saved: SavedWorker | None = None) -> None:
        hub = self._hub
        assert hub is not None
        port = hub.ports[rank] = ThreadPort(self.site, rank, hub)

        def work() -> None:
            worker = None
            try:
                worker = WorkerLoop(self.site, rank, life, port)
                worker.run(self.site.initial.x if how == "begins" else None, saved)
                self._exits["worker", rank] = "it left"
            except (Killed, Closed):
                self._exits["worker", rank] = "killed"
            except BaseException as e:
                self._exits["worker", rank] = type(e).__name__
                self.error = self.error or where_worker(rank, worker, e)
                with suppress(Closed):  # it is over anyway
                    hub.inbox.put(Said(rank, m.Failed(f"{type(e).__name__}: {e}")))
            finally:
                port.running = False
                with suppress(Closed):
                    hub.inbox.put(WentAway(rank))

        hub.inbox.put(Came(rank, how))
        self._start(work, f"worker {rank}, life {life}")

    def _start(self, body: Any, name: str) -> None:
        thread = Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end_all(self, patience_seconds: float) -> None:
        hub = self._hub
        if hub is not None:
            hub.killed.set()
            hub.gate.open()
            for port in list(hub.ports.values()):
                port.killed.set()
                port.inbox.close()
            hub.inbox.close()
        for thread in self._threads:
            thread.join(min(patience_seconds, _END_SECONDS))
        self._threads.clear()
        self._exits.clear()

    def room(self, rank: int) -> bool:
        return True

    def machines(self) -> dict[int, str]:
        return {}

    def exit_of(self, role: str, rank: int) -> str:
        return self._exits.pop((role, rank), "it ended")

    def lost_share(self) -> None:
        return None

    def close(self) -> None:
        self.end_all(_END_SECONDS)


class Debug(RealEngine):
    """One run in threads of this process, on the wall clock. Slow, and easy to look into.

    A breakpoint in a model, a loss or a rule stops that worker, however long: nobody is taken for hung here. The first
    exception ends the run and says in which worker, round and request it was raised; its cause is the exception itself.
    Methods on a shared vector, and averages of pairs in shared memory, need another engine.

    Args:
        task, solver, cluster, feed: what is run, and on what. Of the cluster, only delays and events are used.
        seed: of everything random.
        threads: how many evaluate.
        options: what happens when a worker is lost, and the like.
    """

    name: ClassVar[str] = "debug"
    asks: ClassVar[frozenset[type]] = EVERY_REQUEST - {SharedRead, SharedAdd, Lock, Unlock, Mix}

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
    ) -> None:
        options = replace(options or Options(), patience_seconds=inf)
        super().__init__(task, solver, cluster, feed, seed=seed, threads=threads, options=options)
        check_cluster(cluster, self.name)
        if isinstance(self.initial.x, RowTable):
            raise ConfigError(
                f"the debug engine has one copy of a table for all, and task {task.name!r} trains rows of it"
            )
        board = OwnBoard(cluster.workers, dense(self.initial.x))
        setup = Setup(solver, cluster, feed, seed, options, task)
        self._in_threads = ThreadProcesses(Site(setup, task, self.initial, board))
        self.processes = self._in_threads

    def _failure(self, rank: int, why: str) -> OffbeatError:
        error = self._in_threads.error
        return super()._failure(rank, why) if error is None else error
