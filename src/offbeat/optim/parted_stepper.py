"""The optimizer of a vector that lies in parts: each part has its own, and they step together."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from offbeat.core.errors import RuleError
from offbeat.core.parted import PartedVector


class PartedStepper:
    """Passes steps on to the parts."""

    def __init__(self, x0: PartedVector, lr: float, options: dict[str, Any] | None) -> None:
        self.lr, self.options, self._home = lr, options, x0.home
        self._home.start_optimizer(x0)

    def step(self, g: Any, factor: float = 1.0, work: float = 0.0) -> PartedVector:
        return self._home.step(g, factor, work)

    def step_from(self, x: Any, g: Any, factor: float = 1.0, work: float = 0.0) -> PartedVector:
        raise RuleError("an optimizer whose vector lies in parts (ray.shards) steps from where it is")

    def moments(self) -> list[Tensor]:
        raise RuleError("the moments of an optimizer whose vector lies in parts (ray.shards) are not in one place")

    def direction(self, g: Any) -> PartedVector:
        return self._home.direction(g)

    def state(self) -> dict[str, Any]:
        saved: dict[str, Any] = self._home.optimizer_state()
        return saved

    def load(self, saved: Mapping[str, Any]) -> None:
        self._home.load_optimizer(saved)
