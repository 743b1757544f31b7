"""Control: the watcher's side of a real run. It has processes started, looks on, evaluates, saves, and decides what
becomes of those who are lost.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, ClassVar

from offbeat.core.codec import Codec
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
from offbeat.engines.real.checkpoint import Checkpoint, from_plain, load_worker, to_plain
from offbeat.engines.real.contact import GONE, Contact, ServerLostError
from offbeat.engines.real.observed import Observed
from offbeat.engines.real.recovery import recoverable
from offbeat.engines.real.site import Options
from offbeat.engines.real.staffing import Staffing
from offbeat.engines.real.transport import RunError
from offbeat.engines.running.fit import require, world_of

WORTH_SAYING = 5.0  # seconds of waiting for one who says nothing


class RealEngine(Observed):
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
        self.world = world_of(cluster, task, feed, seed, options.start)
        require(self.name, self.asks, solver, self.world)
        self.task, self.solver, self.cluster, self.feed, self.seed = task, solver, cluster, feed, seed
        self.options = options
        initial = task.init(seed)
        if isinstance(initial.x, Void):
            raise ConfigError(
                f"the {self.name} engine computes real gradients and task {task.name!r} has none: use engine=sim"
            )
        server = solver.init_server(initial.x, self.world)
        super().__init__(cluster.workers, initial, dense(solver.parameters(server, {})))
        self.next_samples: float = inf
        self.next_updates: float = inf
        self.loss_limit = -inf
        self.deadline = inf
        self.incidents: list[str] = []
        self.lost_updates = 0
        self.revisions = 0
        self.suspect = ""
        self.waiting = ""
        self._lr, self._optimizer_options = solver.lr(server, 0), solver.optimizer_options(server)
        self.pool = Pool(_nothing, threads)
        self._watcher: Watcher | None = None
        self._server: Contact | None = None
        self._halted = False  # the run is over, and everything stands still
        self._saved: Checkpoint | None = None  # the last checkpoint
        self._server_life = 0
        self._losses = 0
        self._between_servers = False  # one is lost, and the next has not begun
        self.staffing = Staffing(cluster.workers, len(self.world.present), options.floor)
        self._alone: float | None = None  # since when nobody is there
        self.look_for_wishes: Callable[[], None] = _no_wishes

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, watcher: Watcher) -> str:
        """Runs until the watcher, the deadline or the end of work; says which: "watcher", "seconds", "idle"."""
        self._watcher = watcher
        self.processes.open()
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
                self._adjust()
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

    # -- more workers, or fewer -----------------------------------------------------------------------------------

    def scale(self, workers: int) -> str:
        """From now on, the run is to have so many workers; what becomes of that, in words. Refuses what cannot be."""
        if self._halted:
            raise ConfigError("the run is over")
        before, there = self.staffing.wanted, self.presence.there
        said = self.staffing.ask(workers, self.solver, there)
        if workers != before:
            self.incidents.append(f"{workers} workers are wanted since update {self.updates}, {len(there)} were there")
        return said

    def _adjust(self) -> None:
        """Some are to leave, or may come. Shares of the data go with them."""
        staffing, there = self.staffing, self.presence.there
        leave = staffing.leavers(there)
        join = [] if leave else staffing.joiners(there, self.processes.room)
        if leave or join or self._orphans():
            staffing.leaving |= set(leave)
            self._contact.request(m.Rearrange(leave, join, sorted(staffing.at_rest)), m.Rearranged)
            for i in join:
                if i not in self.presence.there:  # the description of the cluster may have wanted it, too
                    self._start_worker(i, "joins")

    def _orphans(self) -> bool:
        """Whether a share of the data that should be gone through is held by nobody who is there."""
        there = self.presence.there
        if not self.feed.divided or not there or not self.solver.takes_in:
            return False
        held = {share for i in there for share in self.mirror.shares.positions(i, 0)}
        return any(i not in held | self.staffing.at_rest for i in range(self.cluster.workers))

    def _see_to(self, message: m.ToControl) -> bool:
        """What cannot wait, whatever the server is being asked; True if this was such a message."""
        match message:
            case m.WorkerGone() as gone:
                self._depart(gone)
            case m.Wanted(worker):
                if worker not in self.presence.there:  # a server that was lost may have said so before
                    self.staffing.brought(worker)
                    self._bring(worker)
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

    def _batch(self, i: int) -> str:
        """Which one worker i is computing, in words."""
        board = self.processes.board
        return f" at batch {int(board.job_draw[i])}" if board.job[i] else ""

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

    def _start_worker(self, i: int, how: str) -> None:
        life, self._alone = self.presence.come(i, self.now), None
        saved = self._saved.workers[i] if how == "resumes" and self._saved is not None else None
        if saved is not None and self.initial.buffers is not None:  # its statistics, until it shows others
            buffers = load_worker(Codec(self.solver.records), self.solver, self.world, saved)[2]
            self.processes.board.publish(i, None, buffers)
        self.processes.start_worker(i, life, how, saved)

    def _bring(self, i: int) -> None:
        """A worker joins: at once or, where the server is lost, with the next one."""
        if self._between_servers:
            self.presence.there.add(i)
        else:
            self._start_worker(i, "joins")

    def _depart(self, gone: m.WorkerGone) -> None:
        """A worker has gone: restarted if it was lost and the options say so."""
        i = gone.worker
        self.presence.go(i, self.now)
        how = "no exit code" if self._between_servers else self.processes.exit_of("worker", i)
        unmeant = gone.lost and not gone.meant and i not in self.staffing.leaving
        wanted = self.options.on_loss == "restart" and self.solver.takes_in and not self._halted
        comes_back = unmeant and wanted and self._losses < self.options.restarts
        if not gone.meant or not gone.lost:  # what the description of the cluster takes, it brings back
            self.staffing.gone(i, lost=gone.lost, comes_back=comes_back)
        else:
            self.staffing.taken(i)
        if not unmeant:
            return
        self._losses += 1
        now = comes_back and self.processes.room(i)
        where = "" if gone.batch is None else f" at batch {gone.batch}"
        becomes = "restarted" if now else "there is no place for it now" if comes_back else "left out"
        self.incidents.append(f"worker {i} was lost{where} ({how}); {becomes}")
        if now:
            self._bring(i)
        if 0 < len(self.presence.there) < self.options.floor:
            raise RunError(
                f"{len(self.presence.there)} workers are left, fewer than local.floor={self.options.floor}: what is "
                "saved goes on with offbeat resume"
            )

    @property
    def _others_come(self) -> bool:
        """Nobody is there now: whether it is worth waiting."""
        if any(e.kind == "join" and e.at > self.now for e in self.cluster.events):
            return True
        if self._alone is None:
            self._alone = monotonic()
        return bool(self.staffing.missing(set())) and monotonic() - self._alone < self.options.patience_seconds

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

    def _has_ended(self, i: int) -> bool:
        """Whether a worker that the lost server told us nothing of any more has done its part, or is left out."""
        left_out = self.options.on_loss != "restart" and any(e[1:3] == ("lost", i) for e in self.mirror.journal)
        quota = self.options.quota
        return left_out or (quota is not None and bool(self.processes.board.samples[i] >= quota))


def _no_wishes() -> None:
    """Nobody asks for anything."""


def _nothing(job: Any) -> Any:
    raise AssertionError("a real engine computes gradients in its workers")
