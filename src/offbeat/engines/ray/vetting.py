"""What comes from another machine is looked at before it touches parameters."""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from msgspec import Struct
from torch import Tensor

from offbeat.core.effects import Gradient
from offbeat.core.parted import PartedVector
from offbeat.core.sparse import RowSparse
from offbeat.engines.ray.frames import WrongMessageError


def vet(payload: Any, x0: Any, *, finite: bool) -> None:
    """Refuses a gradient of another shape or type than the parameters `x0`, and numbers that are not `finite`.

    A run that diverges and may do so has such numbers; in any other, the watcher sees a loss that explodes before.
    """
    if isinstance(payload, Gradient):
        value = payload.value
        if isinstance(value, RowSparse):
            _vet_rows(value)
        elif isinstance(value, Tensor) and (value.shape != x0.shape or value.dtype != x0.dtype):
            raise WrongMessageError(f"a gradient of shape {tuple(value.shape)} and {value.dtype}")
    for t in _tensors(payload) if finite else ():
        if isinstance(t, PartedVector):
            if not t.finite:
                raise WrongMessageError("it holds numbers that are not finite")
        elif not is_finite(t):
            raise WrongMessageError("it holds numbers that are not finite")


def is_finite(t: Tensor) -> bool:
    """In one pass."""
    return not (t.is_floating_point() and t.numel()) or all(isfinite(e.item()) for e in t.aminmax())


def _vet_rows(value: RowSparse) -> None:
    rows = value.rows
    if rows.ndim != 1 or value.values.ndim != 2 or len(rows) != len(value.values):
        raise WrongMessageError("a gradient whose rows and values do not match")
    if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= value.shape[0]):
        raise WrongMessageError("a gradient of rows that there are not")


def _tensors(node: Any) -> Iterator[Tensor | PartedVector]:
    """Those that a rule will compute with; the point that a gradient was computed on is ours."""
    if isinstance(node, Tensor | PartedVector):
        yield node
    elif isinstance(node, RowSparse):
        yield node.values
    elif isinstance(node, Gradient):
        yield from _tensors(node.value)
    elif isinstance(node, Struct):
        for name in node.__struct_fields__:
            yield from _tensors(getattr(node, name))
    elif isinstance(node, list | tuple):
        for part in node:
            yield from _tensors(part)
