"""No optimizer: only the clock matters."""

from collections.abc import Mapping
from typing import Any

from offbeat.core.void import Void


class NoStepper:
    """The optimizer of a timing-only simulation."""

    def __init__(self, x0: Void, lr: float) -> None:
        self._x, self.lr = x0, lr
        self.options: dict[str, Any] | None = None

    def step(self, g: Any, factor: float = 1.0, work: float = 0.0) -> Void:
        return self._x

    def step_from(self, x: Any, g: Any, factor: float = 1.0, work: float = 0.0) -> Void:
        return self._x

    def moments(self) -> list[Any]:
        return []

    def direction(self, g: Any) -> Any:
        return g

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, saved: Mapping[str, Any]) -> None:
        pass
