"""A task: what is optimised."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from offbeat.core.effects import Gradient
from offbeat.core.feed import Indices
from offbeat.core.layout import Layout

Buffers = Mapping[str, Any] | None
"""BatchNorm's statistics and the like, by name. Each worker keeps its own."""

Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
"""Applies a function to items, perhaps side by side; results in order."""


class Point(NamedTuple):
    """Where a gradient or a loss is taken: the flat parameters and the buffers."""

    x: Any
    buffers: Buffers = None


@runtime_checkable
class Task(Protocol):
    """A problem. `gradient` may be called from several threads at once and must not change its point."""

    name: str
    layout: Layout
    size: int | None
    """Training samples; None where there is no dataset."""
    nbytes: int
    """Bytes of one parameter vector."""

    def init(self, seed: int) -> Point:
        """The initial point, a function of the seed."""

    def gradient(self, point: Point, batch: Indices | None, key: int) -> Gradient:
        """The mean loss over the batch and its gradient. All randomness (dropout) comes from `key`."""

    def evaluate(self, point: Point, mapper: Mapper) -> dict[str, float]:
        """Held-out metrics, at least `loss`; `accuracy` where there are classes."""

    def describe(self) -> dict[str, Any]:
        """Plain values for the run folder: what it is, how large, what chance level is."""
