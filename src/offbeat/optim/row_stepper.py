"""Plain SGD on a table of rows: what a row-sparse gradient does not touch is not touched."""

from collections.abc import Mapping
from typing import Any

import torch

from offbeat.core.errors import ConfigError
from offbeat.core.sparse import RowSparse, RowTable
from offbeat.optim.factories import Factory, construct
from offbeat.optim.flat_sgd import options_of


class RowStepper:
    """Plain SGD on a RowTable, x <- x - lr g: only the rows of the gradient are touched."""

    def __init__(self, factory: Factory, x0: RowTable) -> None:
        made = construct(factory, [torch.zeros(1, requires_grad=True)])
        (group,) = made.param_groups
        extras = [k for k in ("momentum", "weight_decay", "maximize") if group.get(k)]
        if type(made) is not torch.optim.SGD or extras:
            got = f"{type(made).__name__}{''.join(f' with {k}' for k in extras)}"
            raise ConfigError(f"row-sparse gradients take plain SGD, got {got}: it would touch every row in every step")
        self.torch, self.lr, self.options = made, float(group["lr"]), options_of(made)
        self._x = x0

    def step(self, g: RowSparse, factor: float = 1.0, work: float = 0.0) -> RowTable:
        return self.step_from(self._x, g, factor, work)

    def step_from(self, x: RowTable, g: RowSparse, factor: float = 1.0, work: float = 0.0) -> RowTable:
        self._x = x - g * (self.lr * factor)
        return self._x

    def moments(self) -> list[Any]:
        return []

    def direction(self, g: Any) -> Any:
        return g

    def state(self) -> dict[str, Any]:
        return {"x": self._x}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._x = saved["x"]
