"""Means in worker order: the one place where gradients are summed, so that every engine gives the same bits."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from offbeat.core.effects import Gradient, View


def weighted_mean(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """sum_i n_i g_i / sum_i n_i, in the order given. Equal weights: sum_i g_i / W, so that no rounding is added."""
    if len(values) == 1:
        return values[0]
    return total(terms(values, weights, weights)) / divisor(weights)


def hierarchical_mean(values: Sequence[Any], weights: Sequence[float], group: int) -> Any:
    """Sums within groups of `group`, then over the groups: a ragged last group has the weight of its members only."""
    left = iter(terms(values, weights, weights))
    groups = [min(group, len(values) - start) for start in range(0, len(values), group)]
    return total(total(islice(left, size)) for size in groups) / divisor(weights)


def mean_of(values: Sequence[Any], weights: Sequence[float], group: int | None = None) -> Any:
    """The mean that an `AllReduce` asks for: flat, or with sums within groups; None of nothing."""
    if not values:
        return None
    return weighted_mean(values, weights) if group is None else hierarchical_mean(values, weights, group)


def terms(values: Sequence[Any], weights: Sequence[float], all_weights: Sequence[float]) -> Iterable[Any]:
    """What values add to a sum, some of many: as they are, if the weights of all are equal."""
    if _equal(all_weights):
        return values
    return (value * n for value, n in zip(values, weights, strict=True))


def divisor(weights: Sequence[float]) -> float:
    """What makes a mean of the sum of all terms."""
    return len(weights) if _equal(weights) else sum(weights)


def _equal(weights: Sequence[float]) -> bool:
    return all(n == weights[0] for n in weights)


def total(terms: Iterable[Any]) -> Any:
    """Their sum, one after another in the order given."""
    terms = iter(terms)
    found = next(terms)
    for another in terms:
        found = found + another
    return found


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
