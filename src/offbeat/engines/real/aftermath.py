"""After a server was lost: what is computed again, what is taken back and counted as lost, and how books are closed."""

from collections.abc import Iterable
from typing import NamedTuple

from offbeat.core.feed import Feed
from offbeat.core.solver import Solver, World
from offbeat.core.task import Task
from offbeat.core.trace import IN_FLIGHT, LOST
from offbeat.engines.real.board import Board
from offbeat.engines.real.checkpoint import Checkpoint
from offbeat.engines.real.mirror import Mirror
from offbeat.engines.real.open_batches import OpenBatches
from offbeat.engines.real.recovery import bring_forward, recoverable


class Outset(NamedTuple):
    """Where a run begins again after its server was lost."""

    saved: Checkpoint | None
    """The state from which it goes on; None: the beginning."""
    lost: int = 0
    """Updates that are lost."""
    made_again: int = 0
    """Gradients that workers have used by themselves and compute again, for the same rows of the trace."""


class Remains(NamedTuple):
    """What outlives a server: the run itself, what it had written down, and what everybody sees."""

    task: Task
    solver: Solver
    feed: Feed
    world: World
    seed: int
    mirror: Mirror
    board: Board

    def go_back(self, saved: Checkpoint | None) -> Outset:
        """From where the run goes on, after the last checkpoint that there was."""
        mirror = self.mirror
        self.feed.shares = mirror.shares
        if saved is None and not self.board.draws.any():  # not everybody had come yet: all begin again
            mirror.journal, mirror.since = [], []
            return Outset(None)
        return self._recover(saved) if recoverable(self.solver) else Outset(saved, lost=self._fall_back(saved))

    def _recover(self, before: Checkpoint | None) -> Outset:
        """Computes again what was acknowledged since the last checkpoint.

        Steps that workers make by themselves and announce (EASGD's) are not in the journal beyond the last call. They
        are made again, on the same batches and from the same state, and have their rows then.
        """
        mirror, board = self.mirror, self.board
        saved = bring_forward(*self[:5], before, mirror.since, mirror.now)
        drawn = {i: range(w.draws, int(board.draws[i])) for i, w in saved.workers.items()}
        again = {self.feed.nth(i, k) for i, draws in drawn.items() for k in draws}
        made_again = mirror.forget(again, saved.counters)
        noted = mirror.batches()
        if before is not None:
            saved.settled, noted = before.settled, noted | set(before.noted)
        saved.noted = sorted(noted)
        mirror.since = []
        for i, w in saved.workers.items():
            board.draws[i], board.samples[i] = w.draws, w.samples
        return Outset(saved, made_again=made_again)

    def _fall_back(self, saved: Checkpoint | None) -> int:
        """To the last checkpoint, or the beginning; how many updates are lost. Data goes on: no batch comes twice."""
        mirror, board = self.mirror, self.board
        reached, begun, have = mirror.ledger.updates, [0] * self.world.workers, mirror.batches()
        counters = dict.fromkeys(mirror.ledger.counters(), 0) if saved is None else saved.counters
        for i, w in saved.workers.items() if saved is not None else ():
            begun[i], w.draws = w.draws, int(board.draws[i])
        mirror.lose(counters)
        for i, first in enumerate(begun):
            for batch in (self.feed.nth(i, k) for k in range(first, int(board.draws[i]))):
                if batch not in have:
                    mirror.ledger.unfinished(mirror.now, i, batch, None, None, mirror.now, LOST)
        if saved is not None:
            saved.settled, saved.noted, saved.held = board.draws.tolist(), [], self.feed.shares.plain()
        mirror.journal, mirror.since = [], []
        return reached - mirror.ledger.updates

    def close_books(self, saved: Checkpoint | None) -> None:
        """The run was over when its server was lost: one row for every gradient that was still under way."""
        self.feed.shares = self.mirror.shares
        workers = range(self.world.workers)
        settled: list[int] = [0] * self.world.workers if saved is None else saved.settled
        noted: Iterable[tuple[int, int]] = () if saved is None else saved.noted
        still_open = OpenBatches(self.board, self.feed, self.mirror.ledger, settled, noted)
        for i in workers:
            still_open.settle(i, self.mirror.now, None, IN_FLIGHT)
