"""Control: the watcher's side of a real run. It has processes started, looks on, evaluates, saves, and decides what
becomes of those who are lost.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, ClassVar

from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.core.feed import Feed
from offbeat.core.shares import Shares
from offbeat.core.solver import Solver
from offbeat.core.sparse import dense
from offbeat.core.task import Task
from offbeat.core.void import Void
from offbeat.engines.cluster import Cluster
from offbeat.engines.pool import Pool
from offbeat.engines.protocol import Watcher
from offbeat.engines.real import messages as m
from offbeat.engines.real.aftermath import Remains
from offbeat.engines.real.checkpoint import Checkpoint, from_plain, to_plain
from offbeat.engines.real.contact import GONE, Contact, ServerLostError
from offbeat.engines.real.recovery import recoverable
from offbeat.engines.real.site import Options
from offbeat.engines.real.transport import RunError
from offbeat.engines.real.workforce import Workforce
from offbeat.engines.running.fit import require, world_of

WORTH_SAYING = 5.0  # seconds of waiting for one who says nothing


class RealEngine(Workforce):
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
        world = world_of(cluster, task, feed, seed, options.start)
        require(self.name, self.asks, solver, world)
        self.task, self.seed = task, seed
        initial = task.init(seed)
        if isinstance(initial.x, Void):
            raise ConfigError(
                f"the {self.name} engine computes real gradients and task {task.name!r} has none: use engine=sim"
            )
        server = solver.init_server(initial.x, world)
        super().__init__(solver, cluster, feed, world, options, initial, dense(solver.parameters(server, {})))
        self.next_samples: float = inf
        self.next_updates: float = inf
        self.loss_limit = -inf
        self.deadline = inf
        self.lost_updates = 0
        self.revisions = 0
        self.suspect = ""
        self.waiting = ""
        self._lr, self._optimizer_options = solver.lr(server, 0), solver.optimizer_options(server)
        self.pool = Pool(_nothing, threads)
        self._watcher: Watcher | None = None
        self._server: Contact | None = None
        self._opened = False
        self._server_life = 0
        self.look_for_wishes: Callable[[], None] = _no_wishes

    # -- running ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Gets what the processes need, unless it is there already; what is not to be had is refused here."""
        if not self._opened:
            self.processes.open()
        self._opened = True

    def run(self, watcher: Watcher) -> str:
        """Runs until the watcher, the deadline or the end of work; says which: "watcher", "seconds", "idle"."""
        self._watcher = watcher
        self.open()
        self._open_server()
        while True:
            try:
                why = self._hear(watcher) if self.presence.there or self._others_come else self._stop("idle")
            except ServerLostError as e:
                self._replace_server(e.how)
                why = None
            if why is not None:
                return why

    def _hear(self, watcher: Watcher) -> str | None:
        """The server's next message, and what is to be done about it; why the run ends, if it does."""
        match self._contact.next():
            case m.Tick() | None:
                if watcher.tick():
                    return self._stop("watcher")
                self.look_for_wishes()
                self._adjust(lambda order: self._contact.request(order, m.Rearranged))
            case m.Mark():
                if watcher.mark() or watcher.tick():
                    return self._stop("watcher")
                self._go()
            case m.SuspectLoss(_, loss, worker, batch):
                self.suspect = f"worker {worker}, batch {batch}"
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
                self._bring_wanted(worker)
            case m.Hung(worker, seconds):
                self.incidents.append(f"worker {worker} was silent for {seconds:.0f} s and was ended")
            case m.ProcessFailed(worker, why):
                raise self._failure(worker, why)
            case m.Tick(_, silent):
                self._wait_for([(f"worker {i}{self._batch(i)}", seconds) for i, seconds in silent])
                return False
            case _:
                return False
        return True

    def _hears_nothing(self, seconds: float) -> None:
        self._wait_for([("the server", seconds)])

    def _wait_for(self, silent: list[tuple[str, float]]) -> None:
        """Says, where it is worth saying, who is waited for and since when."""
        said = [f"{who} for {seconds:.0f} s" for who, seconds in silent if seconds >= WORTH_SAYING]
        self.waiting = f"waiting for {', '.join(said)}" if said else ""
        if said and self._watcher is not None:
            self._watcher.show()

    def _go(self) -> None:
        self._contact.tell(m.Go(self.next_samples, self.next_updates, self.deadline, self.loss_limit))

    def _stop(self, why: str) -> str:
        now = self.now
        self._halt()
        if why == "seconds":
            self.mirror.now = now
        return why

    def _halt(self) -> None:
        halted: m.Halted = self._contact.request(m.Halt(), m.Halted)
        self._lr, self._optimizer_options, self._halted = halted.lr, halted.optimizer_options, True

    def finish(self) -> None:
        """One row for every gradient still in flight."""
        now = self.now
        try:
            self._contact.request(m.Finish(), m.Finished)
        except ServerLostError as e:  # what there is to know of the run is known: no other is needed
            how = self._how(e.how)
            with suppress(RunError):  # nor anybody who could start one
                self.processes.end_all(self.options.patience_seconds)
            self._part_with_server()
            self._contact.close()
            self._remains.close_books(self._saved)
            self.incidents.append(f"the server {how} when the run was over; nothing lost")
        self.mirror.now = now
        self.presence.settle(now)

    def close(self) -> None:
        """Ends every process of the run; its memory goes with the last."""
        self.pool.close()
        if self._server is not None:
            self._server.close()
        self._server = None
        self.processes.close()

    @property
    def lr(self) -> float | None:
        if self._server is not None and not self._halted:
            self._lr = self._server.request(m.TellRate(), m.Rate).lr
        return self._lr

    @property
    def optimizer_options(self) -> Mapping[str, Any] | None:
        """As they were at the end, or before the beginning."""
        return self._optimizer_options

    # -- checkpoints --------------------------------------------------------------------------------------------

    def save(self, tensors: dict[str, Any]) -> Any:
        """The server's state, the workers', and the counts: the run goes on from here as if it had never stopped."""
        checkpoint = self._checkpoint()
        self.mirror.now = max(self.now, checkpoint.now)
        self._contact.tell(m.Proceed())
        self._saved = checkpoint
        self.mirror.since = []
        accounts = self.processes.board.kept()
        for i, w in checkpoint.workers.items():
            accounts["draws"][i], accounts["samples"][i] = w.draws, w.samples
        roll = self.presence
        kept = {"run": to_plain(checkpoint, tensors), "accounts": accounts, "lives": roll.lives}
        kept |= {"alive": sorted(roll.there), "presence": [roll.seconds(i, self.now) for i in range(len(roll.lives))]}
        kept |= {n: getattr(self, n) for n in ("loss_limit", "incidents", "lost_updates")}
        return {**kept, "wanted": self.staffing.wanted, "totals": (self.bytes, self.queued, self.served)}

    def _checkpoint(self) -> Checkpoint:
        while True:
            try:
                saved: m.Saved = self._contact.request(m.Save(), m.Saved)
            except ServerLostError as e:
                if not self._halted:
                    raise  # whoever runs the run replaces it, and the watcher will ask again
                self._replace_server(e.how)
                self._halt()
            else:
                return saved.checkpoint

    def restore(self, encoded: Any, tensors: Mapping[str, Any]) -> None:
        """The inverse of `save`."""
        mirror = self.mirror
        self._saved = from_plain(encoded["run"], tensors)
        mirror.now = self._saved.now
        self.presence.restore(encoded["lives"], encoded["alive"], encoded["presence"])
        mirror.ledger.load(self._saved.counters)
        mirror.bytes, mirror.queued, mirror.served = encoded["totals"]
        for name in ("loss_limit", "incidents", "lost_updates"):
            setattr(self, name, encoded[name])
        self.staffing.wanted = encoded.get("wanted", len(self.presence.there))
        mirror.shares = Shares(self._saved.held)
        self.processes.board.load(encoded["accounts"])
        self.processes.board.followed[0] = self._saved.now

    # -- processes ----------------------------------------------------------------------------------------------

    @property
    def _contact(self) -> Contact:
        assert self._server is not None
        return self._server

    def _open_server(self) -> None:
        """A server, from the last checkpoint if there is one, and its workers."""
        saved, board, mirror, there = self._saved, self.processes.board, self.mirror, self.presence.there
        how = dict.fromkeys(there, "joins") | dict.fromkeys(self.world.present, "begins")
        if saved is not None:
            how = dict.fromkeys(saved.workers, "resumes") | dict.fromkeys(there - set(saved.workers), "joins")
        there.clear()
        board.alive[:] = 0
        board.alive[list(how)] = 1  # nobody who comes first goes on without them
        self._server_life += 1
        totals = m.Totals(mirror.now, mirror.bytes, mirror.queued, mirror.served)
        line = self.processes.start_server(saved, self._server_life, totals)
        self._server = Contact(line, mirror, self.options.patience_seconds, self._see_to, self._hears_nothing)
        self._begun, self._between_servers = True, False
        for i in sorted(how):
            self._start_worker(i, how[i])
        self._go()

    def _failure(self, rank: int, why: str) -> OffbeatError:
        who = "the server" if rank < 0 else f"worker {rank}"
        return RunError(f"{who} failed{self._batch(rank) if rank >= 0 else ''}: {why}")

    # -- a lost server ------------------------------------------------------------------------------------------

    @property
    def _remains(self) -> Remains:
        run = (self.task, self.solver, self.feed, self.world, self.seed)
        return Remains(*run, self.mirror, self.processes.board)

    def _how(self, why: str) -> str:
        """How the server ended, in words."""
        return f"{why} ({self.processes.exit_of('server', -1)})" if why == GONE else why

    def _part_with_server(self) -> None:
        """Everybody has ended: what was written down is taken over."""
        self._contact.take_all()
        self.presence.settle(self.now)

    def _replace_server(self, why: str) -> None:
        """Another one takes its place, with the same workers, in the state that was written down last."""
        self._losses += 1
        if self._losses > self.options.restarts:
            raise RunError(f"the server {why}, and the run has lost {self._losses} processes: giving up")
        how = self._how(why)
        self.processes.end_all(self.options.patience_seconds)
        self._part_with_server()
        self._between_servers = True
        for message in self._contact.last_words():  # who was to join, or is gone: nobody will say so again
            self._see_to(message)
        self._contact.close()
        self.processes.board.job[:] = 0
        reached = self.updates
        self._saved, lost, made_again = self._remains.go_back(self._saved)
        if self._saved is not None and recoverable(self.solver):
            kept = self._saved.workers
            self.presence.there = {i for i in self.presence.there if i in kept or not self._has_ended(i)}
        self.lost_updates += lost
        self.mirror.shares = Shares(() if self._saved is None else self._saved.held)
        self.revisions += lost > 0 or made_again > 0
        self.incidents.append(
            f"the server {how} after update {reached}; restarted from update {self.updates}, {lost or 'nothing'} lost"
        )
        self._open_server()


def _no_wishes() -> None:
    """Nobody asks for anything."""


def _nothing(job: Any) -> Any:
    raise AssertionError("a real engine computes gradients in its workers")
