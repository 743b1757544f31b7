"""What a model does besides computing: does it draw random numbers, does it write to its parameters?"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from offbeat.core.task import Point
from offbeat.tasks.randomness import Keyed, moves_global_generator, seeded


@dataclass(frozen=True)
class Habits:
    """Found on the first batch, and minded from then on, so that a result depends on its point, batch and key alone."""

    randomness: Literal["none", "keyed", "global"]
    writes: bool
    """It changes its parameters in the forward pass, as nn.Embedding(max_norm=...) does."""

    def prepare(self, point: Point, key: int) -> tuple[Point, AbstractContextManager[object]]:
        """The point to work on, which may be written to, and the source of randomness to work under."""
        if self.writes:
            point = Point(point.x.clone(), point.buffers)
        if self.randomness == "none":
            return point, nullcontext()
        return point, Keyed(key) if self.randomness == "keyed" else seeded(key)


def habits(work: Callable[[Point], object], point: Point) -> Habits:
    """Tries the work, once or twice, on a copy of the point."""
    copy = Point(point.x.clone(), point.buffers)
    draws = moves_global_generator(lambda: work(copy))
    writes = not torch.equal(copy.x, point.x)

    def keyed() -> None:
        with Keyed(0):
            work(copy)

    if not draws:
        return Habits("none", writes)
    return Habits("global" if moves_global_generator(keyed) else "keyed", writes)
