"""Means in worker order: the one place where gradients are summed, so that every engine gives the same bits."""

from collections.abc import Sequence
from typing import Any


def weighted_mean(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """sum_i n_i g_i / sum_i n_i, in the order given. Equal weights: sum_i g_i / W, so that no rounding is added."""
    if len(values) == 1:
        return values[0]
    if all(n == weights[0] for n in weights):
        total = values[0] + values[1]
        for value in values[2:]:
            total = total + value
        return total / len(values)
    total = values[0] * weights[0]
    for value, n in zip(values[1:], weights[1:], strict=True):
        total = total + value * n
    return total / sum(weights)


def hierarchical_mean(values: Sequence[Any], weights: Sequence[float], group: int) -> Any:
    """Sums within groups of `group`, then over the groups: a ragged last group has the weight of its members only."""
    sums = []
    for start in range(0, len(values), group):
        members = list(zip(values[start : start + group], weights[start : start + group], strict=True))
        total = members[0][0] * members[0][1]
        for value, n in members[1:]:
            total = total + value * n
        sums.append(total)
    total = sums[0]
    for part in sums[1:]:
        total = total + part
    return total / sum(weights)


def payload_bytes(payload: Any) -> int:
    """Bytes a message would take on a wire: its vectors; the few numbers beside them are not counted."""
    if payload is None:
        return 0
    nbytes = getattr(payload, "nbytes", None)
    if nbytes is not None:
        return int(nbytes)
    for field in ("value", "x"):  # a Gradient, a View
        if hasattr(payload, field):
            return payload_bytes(getattr(payload, field))
    if isinstance(payload, list | tuple):
        return sum(payload_bytes(p) for p in payload)
    return 0
