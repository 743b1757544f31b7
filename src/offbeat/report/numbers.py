"""Small statistics and how numbers are written."""

from collections.abc import Sequence
from math import erf, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_POINTS = 400
"""So many points a line: more than a screen has room for is only weight."""


def known(values: Sequence[float | None]) -> list[float]:
    return [float(v) for v in values if v is not None and np.isfinite(v)]


def mean(values: Sequence[float | None]) -> float | None:
    found = known(values)
    return sum(found) / len(found) if found else None


def spread(values: Sequence[float | None]) -> float:
    """The standard deviation of a sample; 0 for fewer than two values."""
    found = known(values)
    std = float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
    return std if std > 1e-12 * max(map(abs, found), default=0.0) else 0.0  # less is the rounding of the sum


def fewer(count: int, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Indices of at most so many points, evenly chosen, first and last included."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))


def normal_share(x: ArrayLike, mu: float, sigma: float, width: float) -> NDArray[np.float64]:
    """The share of a normal distribution that falls into a bin of that width around each x: never more than 1."""

    def below(at: float) -> float:
        return 0.5 * (1 + erf((at - mu) / (sigma * sqrt(2))))

    return np.array([below(v + width / 2) - below(v - width / 2) for v in np.asarray(x, np.float64)])


def number(value: float | None, digits: int = 4) -> str:
    """For reading: few digits, thousands apart, a dash where there is none."""
    if value is None:
        return "–"
    if not np.isfinite(value):
        return "not finite"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.{digits}g}"


def seconds(value: float | None) -> str:
    """A duration with its unit, three digits."""
    if value is None:
        return "–"
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def plus_minus(values: Sequence[float | None], digits: int = 3) -> str:
    """Mean ± standard deviation over those that have a value."""
    found = known(values)
    if not found:
        return "–"
    shown = f"{sum(found) / len(found):.{digits}g}"
    return f"{shown} ± {spread(found):.2g}" if len(found) > 1 else shown


def listed(parts: Sequence[str]) -> str:
    """As in a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_NAMES = {
    "loss": "held-out loss",
    "accuracy": "held-out accuracy",
    "train_loss": "training loss",
    "train_accuracy": "training accuracy",
    "weight_norm": "norm of the weights",
    "grad_norm": "norm of the gradients",
    "lr": "learning rate",
}


def metric_name(metric: str) -> str:
    """A column of the metrics, as people call it."""
    return _NAMES.get(metric, metric.replace("_", " "))
