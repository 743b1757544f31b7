"""A board in the ordinary memory of one process. Its threads share it anyway; others are told."""

from typing import Any

import numpy as np
from torch import Tensor

from offbeat.core.solver import Shown
from offbeat.core.task import Buffers
from offbeat.engines.real.board import HEADER, REAL, WHOLE, Board


class OwnBoard(Board):
    """What is published is replaced, never changed: a reader has all of it or what was there before."""

    def __init__(self, workers: int, x: Tensor) -> None:
        numbers = np.zeros((workers, WHOLE), np.int64), np.zeros((workers, REAL))
        super().__init__(np.zeros(HEADER, np.int64), *numbers)
        self._published: list[tuple[Shown | None, Any]] = [(None, None)] * workers
        self._snapshot = x.clone()

    def publish(self, worker: int, shown: Shown | None, buffers: Buffers) -> None:
        self._published[worker] = shown, buffers

    def published(self, worker: int) -> Shown | None:
        return self._published[worker][0]

    def published_buffers(self, worker: int, like: Buffers) -> Buffers:
        found: Buffers = self._published[worker][1]
        return found if found is not None else like

    def set_snapshot(self, x: Tensor) -> None:
        self._snapshot = x.clone()

    def snapshot(self) -> Tensor:
        return self._snapshot.clone()
