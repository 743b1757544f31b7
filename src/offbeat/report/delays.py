"""The distribution of update delays, with a normal fit: jain2018, Figure 1."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.report.figure import Axis, Chart, Figure, Line, Mark, Points, Rule
from offbeat.report.numbers import normal
from offbeat.report.page import Page, Section
from offbeat.report.staleness import Delays, histogram
from offbeat.report.style import OKABE_ITO
from offbeat.report.tables import Table


def fit(taus: NDArray[np.int64], workers: int) -> dict[str, float]:
    """Moments, quantiles, and how far the normal fit is from the truth: the largest distance between the two laws."""
    values, counts = np.unique(taus, return_counts=True)
    mean, std = float(taus.mean()), float(taus.std())
    distance = 0.0
    if std > 0:
        from math import erf, sqrt

        empirical = np.cumsum(counts) / len(taus)
        fitted = np.array([0.5 * (1 + erf((v + 0.5 - mean) / (std * sqrt(2)))) for v in values])
        distance = float(np.abs(empirical - fitted).max())
    low, middle, high = (float(q) for q in np.quantile(taus, (0.05, 0.5, 0.95)))
    out = {"workers": float(workers), "updates": float(len(taus)), "mean": mean, "theory": workers - 1.0}
    return out | {
        "std": std,
        "5%": low,
        "median": middle,
        "95%": high,
        "largest": float(taus.max()),
        "misfit": distance,
    }


def table(found: Sequence[Mapping[str, float]]) -> Table:
    rows = [[v if k in ("mean", "std", "misfit") else int(v) for k, v in row.items()] for row in found]
    rows = [[round(v, 4) if isinstance(v, float) else v for v in row] for row in rows]
    said = "Misfit is the largest distance between the distribution and the normal one (Kolmogorov's)."
    return Table("delays", "Fits", list(found[0]), rows, said)


def figure(by_workers: Mapping[int, NDArray[np.int64]]) -> Figure:
    """One histogram, or several distributions as dots, each with its fit."""
    if len(by_workers) == 1:
        ((workers, taus),) = by_workers.items()
        return histogram(Delays(np.bincount(taus), workers - 1.0), "@asgd", "Update delay of asynchronous SGD")
    marks: list[Mark] = []
    for n, (workers, taus) in enumerate(by_workers.items()):
        colour = f"@c{n % len(OKABE_ITO)}"
        values, counts = np.unique(taus, return_counts=True)
        marks.append(Points(values, counts / len(taus), f"{workers} workers", colour, 5))
        if taus.std() > 0:
            x = np.linspace(max(0, taus.mean() - 4 * taus.std()), taus.mean() + 4 * taus.std(), 120)
            marks.append(Line(x, normal(x, taus.mean(), taus.std()), "", colour, width=1.6, legend=False))
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
