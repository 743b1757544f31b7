"""Control: the watcher's side of a real run. It has processes started, looks on, evaluates, saves, and decides what
becomes of those who are lost.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, ClassVar

from offbeat.core.codec import Codec
from offbeat.core.effects import Applied
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver
from offbeat.core.sparse import dense
from offbeat.core.task import Point, Task
from offbeat.core.trace import LOST
from offbeat.core.void import Void
from offbeat.engines.cluster import Cluster
from offbeat.engines.pool import Pool
from offbeat.engines.protocol import Watcher
from offbeat.engines.real import messages as m
from offbeat.engines.real.checkpoint import Checkpoint, from_plain, load_worker, to_plain
from offbeat.engines.real.contact import GONE, Contact, ServerLostError
from offbeat.engines.real.mirror import Mirror
from offbeat.engines.real.recovery import bring_forward, recoverable
from offbeat.engines.real.site import Options
from offbeat.engines.real.transport import Processes, RunError
from offbeat.engines.running.buffers import mean_buffers
from offbeat.engines.running.fit import require, world_of


class RealEngine:
    """One real run: construct (or restore), then `run()`. A subclass brings the processes."""

    name: ClassVar[str]
    asks: ClassVar[frozenset[type]]
    clock: ClassVar[str] = "wall"

    def __init__(
        self,
        task: Task,
        solver: Solver,
        cluster: Cluster,
        feed: Feed,
        *,
        seed: int,
        threads: int,
        options: Options,
    ) -> None:
        self.world = world_of(cluster, task, feed, seed)
        require(self.name, self.asks, solver, self.world)
        self.task, self.solver, self.cluster, self.feed, self.seed = task, solver, cluster, feed, seed
        self.options = options
        self.initial = task.init(seed)
        if isinstance(self.initial.x, Void):
            raise ConfigError(
                f"the {self.name} engine computes real gradients and task {task.name!r} has none: use engine=sim"
            )
        self.mirror = Mirror()
        self.next_samples: float = inf
        self.next_updates: float = inf
        self.loss_limit = -inf
        self.deadline = inf
        self.incidents: list[str] = []
        self.lost_updates = 0
        if cluster.compute != Cluster().compute:
            self.incidents.append("cluster.compute is for simulation: gradients took as long as they took")
        server = solver.init_server(self.initial.x, self.world)
        self._x: Any = dense(solver.parameters(server, {}))
        self._lr = solver.lr(server, 0)
        self.pool = Pool(_nothing, threads)
        self.processes: Processes  # set by the subclass
        self._server: Contact | None = None
        self._saved: Checkpoint | None = None  # the last checkpoint
        self._server_life = 0
        self._lives = [0] * cluster.workers
        self._arrived = [0.0] * cluster.workers
        self._present = [0.0] * cluster.workers
        self._alive: set[int] = set()
        self._losses = 0

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, watcher: Watcher) -> str:
        """Runs until the watcher, the deadline or the end of work; says which: "watcher", "seconds", "idle"."""
        self.processes.open()
        self._open_server()
        while True:
            try:
                why = self._hear(watcher) if self._alive or self._others_join else self._stop("idle")
            except ServerLostError as e:
                self._replace_server(e.how)
                why = None
            if why is not None:
                return why

    def _hear(self, watcher: Watcher) -> str | None:
        """The server's next message, and what is to be done about it; why the run ends, if it does."""
        match self._contact.next():
            case m.Tick():
                if watcher.tick():
                    return self._stop("watcher")
            case m.Mark():
                if watcher.mark() or watcher.tick():
                    return self._stop("watcher")
                self._go()
            case m.Loss(_, loss):
                if watcher.suspicious(loss):
                    return self._stop("watcher")
                self._go()
            case m.Deadline():
                self.mirror.now = self.deadline
                return self._stop("seconds")
        return None

    def _see_to(self, message: m.ToControl) -> bool:
        """What cannot wait, whatever the server is being asked; True if this was such a message."""
        match message:
            case m.WorkerGone() as gone:
                self._depart(gone)
            case m.Wanted(worker):
                self._start_worker(worker, "joins")
            case m.Hung(worker, seconds):
                self.incidents.append(f"worker {worker} was silent for {seconds:.0f} s and was ended")
            case m.ProcessFailed(worker, why):
                raise self._failure(worker, why)
            case _:
                return False
        return True

    def _go(self) -> None:
        self._contact.tell(m.Go(self.next_samples, self.next_updates, self.deadline, self.loss_limit))

    def _stop(self, why: str) -> str:
        now = self.now
        self._contact.request(m.Halt(), m.Halted)
        if why == "seconds":
            self.mirror.now = now
        return why

    def finish(self) -> None:
        """One row for every gradient still in flight."""
        now = self.now
        self._contact.request(m.Finish(), m.Finished)
        self.mirror.now = now
        for i in self._alive:
            self._present[i] += now - self._arrived[i]
            self._arrived[i] = now

    def close(self) -> None:
        """Ends every process of the run; its memory goes with the last."""
        self.pool.close()
        if self._server is not None:
            self._server.close()
        self._server = None
        self.processes.close()

    # -- what the watcher may ask -------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.mirror.now

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.mirror.ledger.rows

    @property
    def journal(self) -> list[m.Entry]:
        return self.mirror.journal

    @property
    def updates(self) -> int:
        return self.mirror.ledger.updates

    @property
    def samples(self) -> int:
        return self.mirror.ledger.samples

    @property
    def samples_applied(self) -> int:
        return self.mirror.ledger.samples_applied

    @property
    def bytes(self) -> int:
        return self.mirror.bytes

    @property
    def queued(self) -> float:
        return self.mirror.queued

    @property
    def served(self) -> float:
        return self.mirror.served

    @property
    def point(self) -> Point:
        """As of the last time everything stood still for the watcher."""
        board, like = self.processes.board, self.initial.buffers
        x = self._x if self._server is None else board.snapshot()
        owned = [board.published_buffers(i, like) for i in range(len(self._lives)) if board.samples[i] > 0]
        return Point(x, mean_buffers(like, owned))

    @property
    def lr(self) -> float | None:
        if self._server is not None:
            self._lr = self._server.request(m.TellRate(), m.Rate).lr
        return self._lr

    @property
    def lost_share(self) -> float | None:
        return self.processes.lost_share()

    @property
    def optimizer_options(self) -> Mapping[str, Any] | None:
        options: Mapping[str, Any] | None = self._contact.request(m.TellOptions(), m.OptimizerOptions).options
        return options

    def show_applied(self, look: Callable[[Applied], None]) -> bool:
        return False  # gradients are in other processes, and the clock goes on

    def breakdown(self) -> list[dict[str, float]]:
        """Where the seconds of each worker went; waiting is what is left."""
        out = []
        for i in range(self.cluster.workers):
            present, spent = self._presence(i), self.processes.board.seconds(i, self.now)
            out.append({"present": present, **spent, "waiting": max(0.0, present - sum(spent.values()))})
        return out

    def _presence(self, i: int) -> float:
        return self._present[i] + (self.now - self._arrived[i] if i in self._alive else 0.0)

    # -- checkpoints --------------------------------------------------------------------------------------------

    def save(self, tensors: dict[str, Any]) -> Any:
        """The server's state, the workers', and the counts: the run goes on from here as if it had never stopped."""
        saved = self._contact.request(m.Save(), m.Saved)
        self._contact.tell(m.Proceed())
        self._saved = checkpoint = Checkpoint(**{n: getattr(saved, n) for n in Checkpoint.__struct_fields__})
        self.mirror.since = []
        accounts = self.processes.board.kept()
        for i, w in checkpoint.workers.items():
            accounts["draws"][i], accounts["samples"][i] = w.draws, w.samples
        kept = {"run": to_plain(checkpoint, tensors), "accounts": accounts, "lives": self._lives}
        kept |= {"alive": sorted(self._alive), "presence": [self._presence(i) for i in range(len(self._lives))]}
        kept |= {n: getattr(self, n) for n in ("loss_limit", "incidents", "lost_updates")}
        return {**kept, "totals": (self.bytes, self.queued, self.served)}

    def restore(self, encoded: Any, tensors: Mapping[str, Any]) -> None:
        """The inverse of `save`."""
        mirror = self.mirror
        self._saved = from_plain(encoded["run"], tensors)
        mirror.now, self._lives, self._present = self._saved.now, encoded["lives"], encoded["presence"]
        self._alive = set(encoded["alive"])
        mirror.ledger.load(self._saved.counters)
        mirror.bytes, mirror.queued, mirror.served = encoded["totals"]
        for name in ("loss_limit", "incidents", "lost_updates"):
            setattr(self, name, encoded[name])
        self.processes.board.load(encoded["accounts"])

    # -- processes ----------------------------------------------------------------------------------------------

    @property
    def _contact(self) -> Contact:
        assert self._server is not None
        return self._server

    def _open_server(self) -> None:
        """A server, from the last checkpoint if there is one, and its workers."""
        saved, board, mirror = self._saved, self.processes.board, self.mirror
        how = dict.fromkeys(self._alive, "joins") | dict.fromkeys(self.world.present, "begins")
        if saved is not None:
            how = dict.fromkeys(saved.workers, "resumes") | dict.fromkeys(self._alive - set(saved.workers), "joins")
        self._alive.clear()
        board.alive[:] = 0
        board.alive[list(how)] = 1  # nobody who comes first goes on without them
        self._server_life += 1
        totals = m.Totals(mirror.now, mirror.bytes, mirror.queued, mirror.served)
        line = self.processes.start_server(saved, self._server_life, totals)
        self._server = Contact(line, mirror, self.options.patience_seconds, self._see_to)
        for i in sorted(how):
            self._start_worker(i, how[i])
        self._go()

    def _start_worker(self, i: int, how: str) -> None:
        self._lives[i] += 1
        self._alive.add(i)
        self._arrived[i] = self.now
        saved = self._saved.workers[i] if how == "resumes" and self._saved is not None else None
        if saved is not None and self.initial.buffers is not None:  # its statistics, until it shows others
            buffers = load_worker(Codec(self.solver.records), self.solver, self.world, saved)[2]
            self.processes.board.publish(i, None, buffers)
        self.processes.start_worker(i, self._lives[i], how, saved)

    def _depart(self, gone: m.WorkerGone) -> None:
        """A worker has gone: restarted if it was lost and the options say so."""
        i = gone.worker
        self._alive.discard(i)
        self._present[i] += self.now - self._arrived[i]
        how = self.processes.exit_of("worker", i)
        if gone.lost and not gone.meant:
            wanted = self.options.on_loss == "restart" and self.solver.takes_in
            restart = wanted and self._losses < self.options.restarts
            self._losses += 1
            self.incidents.append(f"worker {i} was lost ({how}); {'restarted' if restart else 'left out'}")
            if restart:
                self._start_worker(i, "joins")

    @property
    def _others_join(self) -> bool:
        return any(e.kind == "join" and e.at > self.now for e in self.cluster.events)

    def _failure(self, rank: int, why: str) -> OffbeatError:
        return RunError(f"{'the server' if rank < 0 else f'worker {rank}'} failed: {why}")

    # -- a lost server ------------------------------------------------------------------------------------------

    def _replace_server(self, why: str) -> None:
        """Another one takes its place, with the same workers, in the state that was written down last."""
        self._losses += 1
        if self._losses > self.options.restarts:
            raise RunError(f"the server {why}, and the run has lost {self._losses} processes: giving up")
        how = f" ({self.processes.exit_of('server', -1)})" if why == GONE else ""
        self.processes.end_all(self.options.patience_seconds)
        self._contact.take_all()
        self._contact.close()
        for i in self._alive:
            self._present[i] += self.now - self._arrived[i]
        self.processes.board.job[:] = 0
        reached = self.updates
        begun = self._saved is not None or reached or any(what == "call" for _, what, *_ in self.mirror.since)
        lost = 0
        if begun:
            lost = self._recover() if recoverable(self.solver) else self._fall_back()
        else:  # not everybody had come yet: all begin again
            self.mirror.journal, self.mirror.since = [], []
        self.lost_updates += lost
        self.incidents.append(
            f"the server {why}{how} after update {reached}; "
            f"restarted from update {self.updates}, {lost or 'nothing'} lost"
        )
        self._open_server()

    def _recover(self) -> int:
        """Computes again what was acknowledged since the last checkpoint; how many updates that does not bring back.

        Updates that workers make by themselves and announce (EASGD's) are not in the journal beyond the last call: they
        are made again, from the same state.
        """
        parts = (self.task, self.solver, self.feed, self.world, self.seed)
        saved = bring_forward(*parts, self._saved, self.mirror.since, self.now)
        board = self.processes.board
        drawn = {i: range(w.draws, int(board.draws[i])) for i, w in saved.workers.items()}
        again = {self.feed.nth(i, k) for i, draws in drawn.items() for k in draws}
        lost = self.mirror.take_back(lambda row: (row.source, row.draw) in again, saved.counters)
        noted = self.mirror.batches() - again
        if self._saved is not None:
            saved.settled, noted = self._saved.settled, noted | set(self._saved.noted)
        saved.noted = sorted(noted)
        self._saved, self.mirror.since = saved, []
        for i, w in saved.workers.items():
            board.draws[i], board.samples[i] = w.draws, w.samples
        self._alive = {i for i in self._alive if i in saved.workers or not self._has_ended(i)}
        return lost

    def _has_ended(self, i: int) -> bool:
        """Whether a worker that the lost server told us nothing of any more has done its part, or is left out."""
        left_out = self.options.on_loss != "restart" and any(e[1:3] == ("lost", i) for e in self.mirror.journal)
        quota = self.options.quota
        return left_out or (quota is not None and bool(self.processes.board.samples[i] >= quota))

    def _fall_back(self) -> int:
        """To the last checkpoint, or the beginning; how many updates are lost. Data goes on: no batch comes twice."""
        mirror, board, saved = self.mirror, self.processes.board, self._saved
        reached, begun, have = self.updates, [0] * self.cluster.workers, mirror.batches()
        counters = dict.fromkeys(mirror.ledger.counters(), 0) if saved is None else saved.counters
        for i, w in saved.workers.items() if saved is not None else ():
            begun[i], w.draws = w.draws, int(board.draws[i])
        mirror.take_back(lambda row: True, counters)
        for i, first in enumerate(begun):
            for batch in (self.feed.nth(i, k) for k in range(first, int(board.draws[i]))):
                if batch not in have:
                    mirror.ledger.unfinished(self.now, i, batch, None, None, self.now, LOST)
        if saved is not None:
            saved.settled, saved.noted = board.draws.tolist(), []
        mirror.journal, mirror.since = [], []
        return reached - self.updates


def _nothing(job: Any) -> Any:
    raise AssertionError("a real engine computes gradients in its workers")
