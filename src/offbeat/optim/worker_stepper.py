"""The optimizer of a worker, which may have no parameters yet."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from offbeat.core.codec import Live
from offbeat.core.layout import Layout
from offbeat.optim.factories import Factory
from offbeat.optim.steppers import AnyStepper, start
from offbeat.optim.torch_stepper import Multipliers


class WorkerStepper:
    """An optimizer that begins at the first point it steps from."""

    def __init__(self, factory: Factory, layout: Layout, multipliers: Multipliers | None = None) -> None:
        self._make = partial(start, factory, layout=layout, multipliers=multipliers)
        self._made: AnyStepper | None = None

    def step_from(self, x: Any, g: Any, factor: float = 1.0, work: float = 0.0) -> Any:
        if self._made is None:
            self._made = self._make(x)
        return self._made.step_from(x, g, factor, work)

    def reset(self) -> None:
        """Forgets its moments."""
        self._made = None

    def moments(self) -> list[Any]:
        """Flat views of what it keeps besides the parameters."""
        return [] if self._made is None else self._made.moments()

    def replace_moments(self, values: Any) -> None:
        """Takes these instead, one after another."""
        for moment in self.moments():
            moment.copy_(values[: len(moment)])
            values = values[len(moment) :]

    def state(self) -> dict[str, Any]:
        return {} if self._made is None else self._made.state()

    def load(self, saved: Mapping[str, Any]) -> None:
        self._made = None
        if saved:
            self._made = self._make(saved["x"] if "x" in saved else saved["master"])
            self._made.load(saved)


def revived(kept: WorkerStepper | Live, made: WorkerStepper) -> WorkerStepper:
    """The optimizer of a worker's decoded state: `made`, with what a checkpoint kept; one that is at work stays."""
    if not isinstance(kept, Live):
        return kept
    made.load(kept.saved)
    return made
