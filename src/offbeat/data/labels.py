"""Classes: when a target is one, which labels are wrong, and what was predicted."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from offbeat.core.errors import DataError
from offbeat.core.feed import Indices

_IGNORED = -100  # what torch's cross-entropy passes over


class Predictions(NamedTuple):
    """The mean loss over a held-out set and, where there are classes, what was predicted and what is true."""

    loss: float
    predicted: Indices | None = None
    truth: Indices | None = None
    num_classes: int = 0


def classified(output: Any, target: Any) -> bool:
    """Whether the output is one row of scores a sample and the target a class."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor):
        return False
    return output.dim() == 2 and target.dim() == 1 and target.dtype == torch.int64 and len(output) == len(target)


def correct(output: Any, target: Any) -> int | None:
    """How many are right, where there are classes."""
    return int((output.detach().argmax(1) == target).sum()) if classified(output, target) else None


def refuse_one_class(labels: Indices | None, task: str) -> None:
    if labels is not None and labels.min() == labels.max():
        raise DataError(
            f"all {len(labels):,} training samples of task {task!r} have the label {labels[0]}: "
            "there is nothing to tell apart"
        )


def refuse_out_of_range(sets: Mapping[str, Indices | None], num_classes: int, task: str) -> None:
    """Labels that the model has no output for, in words, before the loss stumbles over them."""
    for which, labels in sets.items():
        if labels is None:
            continue
        wrong = labels[(labels >= num_classes) | ((labels < 0) & (labels != _IGNORED))]
        if wrong.size:
            raise DataError(
                f"label {wrong[0]} of the {which} of task {task!r} is out of range: "
                f"the model has {num_classes} outputs, so labels must be from 0 to {num_classes - 1}"
            )
