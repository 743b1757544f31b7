"""What `offbeat delays` shows: the distribution of update delays, with a normal fit (jain2018, Figure 1)."""

from collections.abc import Mapping, Sequence
from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

from offbeat.core.units import counted
from offbeat.report.draw.figure import Axis, Chart, Figure, Line, Mark, Points, Rule
from offbeat.report.draw.style import OKABE_ITO
from offbeat.report.figures.delay_histogram import Delays, histogram
from offbeat.report.numbers import normal_share
from offbeat.report.pages.page import Page, Section
from offbeat.report.tables import Table

FIT_ERROR = (
    "The fit error is the largest difference between the share of gradients up to some staleness and what the normal "
    "fit gives (Kolmogorov's distance)."
)


def fit(taus: NDArray[np.int64], workers: int) -> dict[str, float]:
    """Moments, quantiles, and how far the normal fit is off.

    The error of the fit is the largest difference, over all staleness, between the share of gradients that are at most
    so stale and what the fit says of it (Kolmogorov's distance).
    """
    values, counts = np.unique(taus, return_counts=True)
    mean, std = float(taus.mean()), float(taus.std())
    error = 0.0
    if std > 0:
        fitted = [0.5 * (1 + erf((v + 0.5 - mean) / (std * sqrt(2)))) for v in values]
        error = float(np.abs(np.cumsum(counts) / len(taus) - fitted).max())
    low, middle, high = (float(q) for q in np.quantile(taus, (0.05, 0.5, 0.95)))
    return {
        "workers": float(workers),
        "updates": float(len(taus)),
        "mean": mean,
        "theory": workers - 1.0,
        "std": std,
        "5%": low,
        "median": middle,
        "95%": high,
        "largest": float(taus.max()),
        "fit error": error,
    }


def table(found: Sequence[Mapping[str, float]]) -> Table:
    rows = [[round(v, 4) if k in ("mean", "std", "fit error") else int(v) for k, v in row.items()] for row in found]
    return Table("delays", "Fits", list(found[0]), rows, FIT_ERROR)


def figure(by_workers: Mapping[int, NDArray[np.int64]]) -> Figure:
    """One histogram, or several distributions as dots, each with its fit."""
    if len(by_workers) == 1:
        ((workers, taus),) = by_workers.items()
        return histogram(Delays(np.bincount(taus), workers - 1.0), "@asgd", "Update delay of asynchronous SGD")
    marks: list[Mark] = []
    for n, (workers, taus) in enumerate(by_workers.items()):
        colour = f"@c{n % len(OKABE_ITO)}"
        values, counts = np.unique(taus, return_counts=True)
        marks.append(Points(values, counts / len(taus), counted(workers, "worker"), colour, 5))
        if taus.std() > 0:
            x = np.linspace(max(0, taus.mean() - 4 * taus.std()), taus.mean() + 4 * taus.std(), 120)
            marks.append(Line(x, normal_share(x, taus.mean(), taus.std(), 1), "", colour, width=1.6, legend=False))
        marks.append(Rule(workers - 1.0, f"{workers - 1}", "x"))
    x_axis, y_axis = Axis("staleness τ", "updates", start=0), Axis("share of gradients", start=0)
    title = "Update delay of asynchronous SGD"
    return Figure(title, x_axis, y_axis, tuple(marks))


def page(by_workers: Mapping[int, NDArray[np.int64]], about: str) -> Page:
    found = [fit(taus, w) for w, taus in by_workers.items()]
    first = found[0]
    lead = f"{int(first['updates']):,} updates of {about}, timing only: no model, no training. "
    if len(found) == 1:
        lead += f"Delays have mean {first['mean']:.2f} (theory: {first['theory']:g}) and deviation {first['std']:.2f}."
    charts = [
        Chart.of("delays", figure(by_workers), "Simulated, with normal fits (lines); dashes are at W − 1.", wide=True)
    ]
    return Page("How stale are gradients?", [lead], [Section("", charts), Section("", tables=[table(found)])])
