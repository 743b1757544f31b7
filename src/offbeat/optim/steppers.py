"""An optimizer at work on one vector, whatever the vector is: the door to this package."""

from typing import Any

import torch

from offbeat.core.errors import ConfigError
from offbeat.core.layout import Layout
from offbeat.core.parted import PartedVector
from offbeat.core.sparse import RowTable
from offbeat.core.void import Void
from offbeat.optim.factories import OPTIMIZERS, Factory, base_rate, optimizer_factory, sample
from offbeat.optim.flat_sgd import FlatSGD
from offbeat.optim.no_stepper import NoStepper
from offbeat.optim.parted_stepper import PartedStepper
from offbeat.optim.row_stepper import RowStepper
from offbeat.optim.torch_stepper import ELEMENTWISE, Multipliers, TorchStepper, factors_of
from offbeat.optim.two_stage import TwoStage, TwoStageStepper

AnyStepper = TorchStepper | TwoStageStepper | FlatSGD | RowStepper | NoStepper | PartedStepper


def refusal(factory: Factory, layout: Layout, multipliers: Multipliers | None = None) -> str | None:
    """Why an optimizer cannot serve parameters of this layout, in words; None where it can."""
    if not layout.segments:  # the clock alone: there is nothing to step
        return None
    try:
        start(factory, torch.zeros(layout.size), layout, multipliers)
    except ConfigError as e:
        return str(e)
    return None


def whole_only(factory: Factory, multipliers: Multipliers | None = None) -> str | None:
    """Why an optimizer needs the whole vector in one place, in words; None where it treats components one by one."""
    if isinstance(factory, TwoStage):
        return "optimizer.first is for a server in one place"
    if multipliers:
        return "optimizer.multipliers go by layers, which lie across parts of the vector"
    name = type(sample(factory)).__name__
    return None if name in ELEMENTWISE else f"{name} needs the shapes and norms of whole layers"


def start(factory: Factory, x0: Any, layout: Layout, multipliers: Multipliers | None = None) -> AnyStepper:
    """The optimizer at work on x0."""
    if isinstance(x0, Void):
        return NoStepper(x0, base_rate(factory))
    if isinstance(x0, PartedVector):
        if (reason := whole_only(factory, multipliers)) is not None:
            raise ConfigError(reason)
        one = start(factory, torch.zeros(1, dtype=x0.dtype), layout)
        return PartedStepper(x0, one.lr, one.options)
    if isinstance(x0, RowTable):
        if isinstance(factory, TwoStage) or multipliers:
            raise ConfigError("row-sparse gradients take plain SGD alone: no optimizer.first, no optimizer.multipliers")
        return RowStepper(factory, x0)
    if isinstance(factory, TwoStage):
        return TwoStageStepper(factory, x0, layout, multipliers)
    if not multipliers and (made := sample(factory)) is not None and FlatSGD.serves(made):
        return FlatSGD(made, x0)
    return TorchStepper(factory, x0, layout, multipliers)


__all__ = [
    "ELEMENTWISE",
    "OPTIMIZERS",
    "AnyStepper",
    "Factory",
    "Multipliers",
    "TorchStepper",
    "TwoStage",
    "factors_of",
    "optimizer_factory",
    "refusal",
    "start",
    "whole_only",
]
