"""The board: what onlookers may see of every worker, and what all processes of a run may see of it."""

import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from offbeat.core.solver import Shown
from offbeat.core.task import Buffers

WHOLE = 24  # whole numbers of each worker,
REAL = 16  # real ones,
HEADER = 64  # and those of the run


class Board(ABC):
    """Numbers of each worker, one place a worker. The worker itself writes, unless it says otherwise:

    | `draws` | mini-batches taken; outlives the worker | `samples` | processed |
    | `job` | 1 while it computes a gradient (the server clears it when the worker is lost) |
    | `job_version`, `job_source`, `job_draw`, `job_started` | of which |
    | `replies` | answers received | `announced` | samples of its own gradients, applied |
    | `computing`, `delayed`, `communicating` | seconds |
    | `alive` | by the server (and by the control, before the server starts) |
    | `cancel` | by the server: the number of the reply after which a gradient is to be given up, counted from 1 |

    And of the run, written by the server: `work` (samples processed by everybody), `updates`, `loss_limit` (a loss
    above it is shown to the watcher), `rest` (1 while workers are to rest between rounds), `followed` (up to when the
    cluster's description was followed: it outlives the server), the clock's two numbers.
    """

    def __init__(self, header: NDArray[np.int64], whole: NDArray[np.int64], real: NDArray[np.float64]) -> None:
        self.paused_ns, self.work, self.updates, self.zero_ns, self.rest = (header[k : k + 1] for k in range(5))
        self.loss_limit, self.followed = (header.view(np.float64)[k : k + 1] for k in (8, 9))
        self.draws, self.samples, self.job, self.job_version, self.job_draw, self.job_source = whole.T[:6]
        self.replies, self.cancel, self.announced, self.alive = whole.T[6:10]
        self.job_started, self.computing, self.delayed, self.communicating = real.T[:4]

    @abstractmethod
    def publish(self, worker: int, shown: Shown | None, buffers: Buffers) -> None:
        """By the worker: what it shows of itself. A reader never sees half of it."""

    @abstractmethod
    def published(self, worker: int) -> Shown | None:
        """What the worker last showed of itself; None if it has not."""

    @abstractmethod
    def published_buffers(self, worker: int, like: Buffers) -> Buffers:
        """The worker's own statistics, as it last showed them."""

    @abstractmethod
    def set_snapshot(self, x: Tensor) -> None:
        """By the server: the parameters that are evaluated, as of now."""

    @abstractmethod
    def snapshot(self) -> Tensor:
        """A copy of them."""

    def seconds(self, worker: int, now: float) -> dict[str, float]:
        """How the worker spent its time, the gradient it is computing included."""
        spent = {n: float(getattr(self, n)[worker]) for n in ("computing", "delayed", "communicating")}
        if self.job[worker]:
            spent["computing"] += max(0.0, now - float(self.job_started[worker]))
        return spent

    def kept(self) -> dict[str, list[Any]]:
        """What of it a checkpoint keeps."""
        return {n: getattr(self, n).tolist() for n in _KEPT}

    def load(self, kept: dict[str, list[Any]]) -> None:
        for name in _KEPT:
            getattr(self, name)[:] = kept[name]


_KEPT = ("draws", "samples", "computing", "delayed", "communicating")


class Clock:
    """The run's clock: wall seconds since it began, without the time that it stood still (evaluations)."""

    def __init__(self, board: Board) -> None:
        self._paused, self._zero = board.paused_ns, board.zero_ns

    def start(self, elapsed: float) -> None:
        """By the server; `elapsed` is what earlier sessions of the run took."""
        self._zero[0] = time.monotonic_ns() - round(elapsed * 1e9)
        self._paused[0] = 0

    def now(self) -> float:
        while True:  # a worker may be stopped between the two readings
            paused = int(self._paused[0])
            now = time.monotonic_ns() - int(self._zero[0]) - paused
            if paused == self._paused[0]:
                return now / 1e9

    def skip(self, since: float) -> None:
        """By the server: the time since then (in seconds of this clock) does not count."""
        self._paused[0] += round((self.now() - since) * 1e9)
