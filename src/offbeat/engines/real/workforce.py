"""The workers of a real run, as its control has them: who is started, comes back or leaves, and how many there are."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from offbeat.core.codec import Codec
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver, World
from offbeat.core.task import Point
from offbeat.engines.cluster import Cluster
from offbeat.engines.real import messages as m
from offbeat.engines.real.checkpoint import Checkpoint, load_worker
from offbeat.engines.real.observed import Observed
from offbeat.engines.real.site import Options
from offbeat.engines.real.staffing import Staffing
from offbeat.engines.real.transport import RunError


class Workforce(Observed):
    """What the control does with workers; what it does with the server is `RealEngine`'s."""

    def __init__(
        self, solver: Solver, cluster: Cluster, feed: Feed, world: World, options: Options, initial: Point, x: Any
    ) -> None:
        super().__init__(cluster.workers, initial, x)
        self.solver, self.cluster, self.feed, self.world, self.options = solver, cluster, feed, world, options
        self.incidents: list[str] = []
        self.staffing = Staffing(cluster.workers, len(world.present), options.floor)
        self._saved: Checkpoint | None = None  # the last checkpoint
        self._losses = 0  # of processes, the server's included
        self._halted = False  # the run is over, and everything stands still
        self._between_servers = False  # one is lost, and the next has not begun
        self._alone: float | None = None  # since when nobody is there

    # -- more of them, or fewer -----------------------------------------------------------------------------------

    def scale(self, workers: int) -> str:
        """From now on, the run is to have so many workers; what becomes of that, in words. Refuses what cannot be."""
        if self._halted:
            raise ConfigError("the run is over")
        before, there = self.staffing.wanted, self.presence.there
        said = self.staffing.ask(workers, self.solver, there)
        if workers != before:
            self.incidents.append(f"{workers} workers are wanted since update {self.updates}, {len(there)} were there")
        return said

    def _adjust(self, rearrange: Callable[[m.Rearrange], object]) -> None:
        """Some are to leave, or may come: `rearrange` has the server deal their shares of the data anew."""
        staffing, there = self.staffing, self.presence.there
        leave = staffing.leavers(there)
        join = [] if leave else staffing.joiners(there, self.processes.room)
        if leave or join or self._orphans():
            staffing.leaving |= set(leave)
            rearrange(m.Rearrange(leave, join, sorted(staffing.at_rest)))
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

    # -- coming and going -----------------------------------------------------------------------------------------

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

    def _bring_wanted(self, i: int) -> None:
        """The description of the cluster says that it joins now; a server that was lost may have said so before."""
        if i not in self.presence.there:
            self.staffing.brought(i)
            self._bring(i)

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
        if unmeant:
            self._losses += 1
            self._replace_worker(gone, how, comes_back)

    def _replace_worker(self, gone: m.WorkerGone, how: str, comes_back: bool) -> None:
        now = comes_back and self.processes.room(gone.worker)
        where = "" if gone.batch is None else f" at batch {gone.batch}"
        becomes = "restarted" if now else "there is no place for it now" if comes_back else "left out"
        self.incidents.append(f"worker {gone.worker} was lost{where} ({how}); {becomes}")
        if now:
            self._bring(gone.worker)
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

    def _has_ended(self, i: int) -> bool:
        """Whether a worker that the lost server told us nothing of any more has done its part, or is left out."""
        left_out = self.options.on_loss != "restart" and any(e[1:3] == ("lost", i) for e in self.mirror.journal)
        quota = self.options.quota
        return left_out or (quota is not None and bool(self.processes.board.samples[i] >= quota))

    def _batch(self, i: int) -> str:
        """Which one worker i is computing, in words."""
        board = self.processes.board
        return f" at batch {int(board.job_draw[i])}" if board.job[i] else ""
