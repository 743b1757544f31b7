"""The best parameters seen, by the held-out accuracy or, where there is none, the loss."""

from math import isfinite
from typing import Any

from offbeat.core.budget import HIGHER_IS_BETTER
from offbeat.core.task import Point


class Best:
    """The best value so far, its point if it is to be kept, and how many evaluations were no better since."""

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self.criterion: str | None = None
        """What decides: known with the first evaluation."""
        self.point: Point | None = None
        self.value: float | None = None
        self.worse = 0

    def decide_by(self, first: dict[str, Any]) -> str:
        """What decides, from the first evaluation."""
        self.criterion = "loss" if first["accuracy"] is None else "accuracy"
        return self.criterion

    def see(self, row: dict[str, Any], point: Point) -> None:
        """One more evaluation, of this point."""
        name = self.criterion or self.decide_by(row)
        value = row[name]
        if value is None or not isfinite(value):
            self.worse += 1
            return
        better = self.value is None or (value > self.value if HIGHER_IS_BETTER[name] else value < self.value)
        self.worse = 0 if better else self.worse + 1
        if better:
            self.value = value
            self.point = point if self._keep else None
