"""The task of a timing-only simulation: no parameters, no gradients, only their size on the wire."""

from typing import Any

from offbeat.core.effects import Gradient
from offbeat.core.feed import Indices
from offbeat.core.layout import Layout
from offbeat.core.task import Mapper, Point
from offbeat.core.void import Void


class Idle:
    """`nbytes` is the size of one parameter vector; a gradient counts `batch` samples."""

    name = "idle"
    layout = Layout(())
    size: int | None = None

    def __init__(self, nbytes: int = 0, *, batch: int = 1) -> None:
        self.nbytes, self._batch = nbytes, batch
        self._void = Void(nbytes)

    def init(self, seed: int) -> Point:
        return Point(self._void)

    def gradient(self, point: Point, batch: Indices | None, key: int) -> Gradient:
        return Gradient(self._void, 0.0, self._batch)

    def evaluate(self, point: Point, mapper: Mapper) -> dict[str, float]:
        return {}

    def describe(self) -> dict[str, Any]:
        return {"task": self.name, "nbytes": self.nbytes}
