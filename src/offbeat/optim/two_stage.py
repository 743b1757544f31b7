"""One optimizer for the first samples, another one after them."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from offbeat.core.layout import Layout
from offbeat.optim.factories import Factory
from offbeat.optim.torch_stepper import Multipliers, TorchStepper


class TwoStage:
    """Another optimizer for the first samples, then the main one with fresh moments (wongpanich2020, Figure 3)."""

    def __init__(self, first: Factory, then: Factory, samples: float) -> None:
        self.first, self.then, self.samples = first, then, samples

    def __call__(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return self.then(params)


class TwoStageStepper:
    """Plain steps until the work clock says otherwise."""

    def __init__(self, plan: TwoStage, x0: Tensor, layout: Layout, multipliers: Multipliers | None) -> None:
        self._switch = plan.samples
        self._stages = (
            TorchStepper(plan.first, x0, layout, multipliers),
            TorchStepper(plan.then, x0, layout, multipliers),
        )
        self._x = x0
        self._work = 0.0

    @property
    def _now(self) -> TorchStepper:
        return self._stages[self._work > self._switch]

    @property
    def torch(self) -> torch.optim.Optimizer:
        return self._now.torch

    @property
    def lr(self) -> float:
        return self._now.lr

    @property
    def options(self) -> dict[str, Any]:
        return self._now.options

    def step(self, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        return self.step_from(self._x, g, factor, work)

    def step_from(self, x: Tensor, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        self._work = work
        self._x = self._now.step_from(x, g, factor)
        return self._x

    def moments(self) -> list[Tensor]:
        return self._now.moments()

    def direction(self, g: Tensor) -> Tensor:
        return self._now.direction(g)

    def state(self) -> dict[str, Any]:
        return {"x": self._x, "work": self._work, "stages": [s.state() for s in self._stages]}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._x, self._work = saved["x"], saved["work"]
        for stage, state in zip(self._stages, saved["stages"], strict=True):
            stage.load(state)
