"""A board that is in nobody's shared memory: each process has one of its own, and its numbers ride on messages."""

from typing import Any

from torch import Tensor

from offbeat.core.solver import Shown
from offbeat.core.task import Buffers
from offbeat.engines.ray.ray_messages import Row
from offbeat.engines.real.board import Board
from offbeat.engines.real.own_board import OwnBoard

WHOLE_NAMES = ("draws", "samples", "job", "job_version", "job_draw", "job_source", "announced")
"""The numbers of a worker that ride on its messages,"""
REAL_NAMES = ("job_started", "computing", "delayed", "communicating")
"""and those with fractions."""


class RemoteBoard(OwnBoard):
    """Remembers what is new since it was last sent on."""

    def __init__(self, workers: int, x: Tensor) -> None:
        super().__init__(workers, x)
        self.new_shown: set[int] = set()
        """Workers that have published since."""
        self.new_snapshot = False

    def publish(self, worker: int, shown: Shown | None, buffers: Buffers) -> None:
        super().publish(worker, shown, buffers)
        self.new_shown.add(worker)

    def set_snapshot(self, x: Tensor) -> None:
        super().set_snapshot(x)
        self.new_snapshot = True


def row_of(board: Board, worker: int) -> Row:
    whole = [int(getattr(board, name)[worker]) for name in WHOLE_NAMES]
    return whole, [float(getattr(board, name)[worker]) for name in REAL_NAMES]


def set_row(board: Board, worker: int, row: Row) -> None:
    whole, real = row
    for name, value in (*zip(WHOLE_NAMES, whole, strict=True), *zip(REAL_NAMES, real, strict=True)):
        getattr(board, name)[worker] = value


def buffers_of(board: Board, worker: int) -> Any:
    """What the worker has shown of its statistics; None if nothing."""
    return board.published_buffers(worker, None)
