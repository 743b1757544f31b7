"""One gradient: computed from a point and a mini-batch, and stamped with where it comes from."""

from typing import Any

from offbeat.core.effects import Gradient
from offbeat.core.feed import Feed
from offbeat.core.seeds import key64
from offbeat.core.task import Buffers, Point, Task


def compute(task: Task, feed: Feed, seed: int, x: Any, buffers: Buffers, source: int, draw: int) -> Gradient:
    """The gradient at x of draw `draw` of `source`: the same bits wherever and whenever it is computed."""
    return task.gradient(Point(x, buffers), feed.indices(source, draw), key64(seed, "model", source, draw))


def stamp(
    g: Gradient,
    at: Any,
    version: int | None,
    source: int,
    draw: int,
    *,
    started: float = 0.0,
    computed: float = 0.0,
    work: int = 0,
) -> Buffers:
    """Writes on a gradient what the engine knows of it. Gives back the buffers, which are the worker's own."""
    g.at, g.version, g.source, g.draw = at, version, source, draw
    g.started, g.computed, g.work = started, computed, work
    buffers: Buffers = g.buffers
    g.buffers = None
    return buffers
