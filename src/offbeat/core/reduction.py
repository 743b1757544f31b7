"""Means in worker order: the one place where gradients are summed, so that every engine gives the same bits."""

from collections.abc import Iterable, Sequence
from typing import Any

from offbeat.core.effects import Gradient, View


def weighted_mean(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """sum_i n_i g_i / sum_i n_i, in the order given. Equal weights: sum_i g_i / W, so that no rounding is added."""
    if len(values) == 1:
        return values[0]
    if all(n == weights[0] for n in weights):
        return _total(values) / len(values)
    return _total(value * n for value, n in zip(values, weights, strict=True)) / sum(weights)


def hierarchical_mean(values: Sequence[Any], weights: Sequence[float], group: int) -> Any:
    """Sums within groups of `group`, then over the groups: a ragged last group has the weight of its members only."""
    equal = all(n == weights[0] for n in weights)
    sums = []
    for start in range(0, len(values), group):
        members = slice(start, start + group)
        pairs = zip(values[members], weights[members], strict=True)
        sums.append(_total(value if equal else value * n for value, n in pairs))
    return _total(sums) / (len(values) if equal else sum(weights))


def mean_of(values: Sequence[Any], weights: Sequence[float], group: int | None = None) -> Any:
    """The mean that an `AllReduce` asks for: flat, or with sums within groups; None of nothing."""
    if not values:
        return None
    return weighted_mean(values, weights) if group is None else hierarchical_mean(values, weights, group)


def _total(terms: Iterable[Any]) -> Any:
    terms = iter(terms)
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def payload_bytes(payload: Any) -> int:
    """Bytes a message would take on a wire: its vectors; the few numbers beside them are not counted."""
    if isinstance(payload, Gradient):  # nearly all of them
        return int(payload.value.nbytes)
    if isinstance(payload, View):
        return int(payload.x.nbytes)
    if payload is None:
        return 0
    nbytes = getattr(payload, "nbytes", None)
    if nbytes is not None:
        return int(nbytes)
    for field in ("value", "x"):
        if hasattr(payload, field):
            return payload_bytes(getattr(payload, field))
    if isinstance(payload, list | tuple):
        return sum(payload_bytes(p) for p in payload)
    return 0
