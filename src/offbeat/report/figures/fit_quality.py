"""A fit beside its data: how times are distributed, what they remember, and what is left over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from offbeat.report.draw.figure import Axis, Bars, Figure, Line, Mark, Points, Rule
from offbeat.report.draw.style import faded
from offbeat.report.numbers import fewer

Floats = NDArray[np.float64]
_BINS = 60
_COLOUR = "@c0"


@dataclass(frozen=True)
class Fitted:
    """The times of one run's batches, over their fitted mean, beside what the fit says of them."""

    name: str
    started: Floats
    """Seconds of the run."""
    ratios: Floats
    spread: float
    """Standard deviation over mean of the fit, within one state."""
    factor: float = 1.0
    """Of slow spells; 1 where there are none."""
    slow_share: float = 0.0


def distribution(found: Fitted) -> Figure:
    """How often a batch took how many times its mean, and the density of the fit."""
    least, most = np.quantile(found.ratios, (0.001, 0.999))
    edges = np.linspace(least, max(most, least + 1e-6), _BINS + 1)
    counts, _ = np.histogram(found.ratios, edges)
    width = edges[1] - edges[0]
    share = counts / (len(found.ratios) * width)
    x = np.linspace(max(edges[0], 1e-3), edges[-1], 240)
    marks: tuple[Mark, ...] = (
        Bars((edges[:-1] + edges[1:]) / 2, share, "measured", faded(_COLOUR, 0.7), width=0.95 * width),
        Line(x, density(x, found), "fitted", "@ink", width=1.6),
    )
    return Figure("Times of a batch", Axis("time / fitted mean"), Axis("density", start=0), marks)


def density(x: Floats, found: Fitted) -> Floats:
    """Of the lognormal noise around the fitted mean, and of a slow state beside it where there is one."""
    usual = 1 / (1 - found.slow_share + found.slow_share * found.factor)  # so that the mean of both is 1
    return (1 - found.slow_share) * _lognormal(x / usual, found.spread) / usual + (
        found.slow_share * _lognormal(x / (usual * found.factor), found.spread) / (usual * found.factor)
    )


def _lognormal(x: Floats, spread: float) -> Floats:
    """The density of a lognormal variable of mean 1."""
    s = sqrt(log(1 + max(spread, 1e-4) ** 2))
    return np.asarray(np.exp(-((np.log(x) + s * s / 2) ** 2) / (2 * s * s)) / (x * s * sqrt(2 * np.pi)))


def over_time(found: Fitted) -> Figure:
    """What is left over, batch by batch: a machine that was busy with other things shows here."""
    at = fewer(len(found.ratios), 2000)
    left = found.ratios[at] - 1
    marks: tuple[Mark, ...] = (
        Points(found.started[at], left, "a batch", faded(_COLOUR, 0.5), 3, legend=False),
        Rule(0.0, "", "y"),
    )
    return Figure("What is left over", Axis("wall time", "s"), Axis("measured / fitted - 1", percent=True), marks)


def memory(measured: Floats, bound: float, fitted: Sequence[float]) -> Figure:
    """Whether a slow batch is followed by another: the autocorrelation, and that of the fit."""
    lags = np.arange(1, len(measured) + 1)
    marks: tuple[Mark, ...] = (
        Bars(lags, measured, "measured", faded(_COLOUR, 0.7), width=0.7),
        Line(lags, fitted, "fitted", "@ink", width=1.6),
        Rule(bound, "independent times stay below", "y"),
    )
    y = Axis("autocorrelation", start=min(-0.1, float(measured.min(initial=0)) * 1.1), end=1.0)
    return Figure("What times remember", Axis("batches later"), y, marks)


def by_run(left: Mapping[str, float]) -> Figure:
    """How far the fitted mean is from the measured one, run by run."""
    names = tuple(left)
    return Figure(
        "Fit by run",
        Axis("fitted / measured - 1", percent=True),
        Axis(categories=names, reverse=True),
        (Bars(list(names), [*left.values()], "", faded(_COLOUR, 0.8), width=0.6),),
        horizontal=True,
        height=max(200, 110 + 30 * len(names)),
    )
