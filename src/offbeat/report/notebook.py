"""What a notebook shows: the figures of one run by name (`run.plot.loss()`), a run in a few lines, tables."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from offbeat.core.errors import ConfigError, unknown
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Figure
from offbeat.report.figures import curves
from offbeat.report.figures.gallery import FigureView, charts, figures_of_one
from offbeat.report.figures.spacetime import SHORT
from offbeat.report.figures.spacetime import figure as spacetime_figure
from offbeat.report.groups import group
from offbeat.report.numbers import metric_name, number
from offbeat.report.pages.single import tiles, warnings
from offbeat.report.tables import cell

_WIDTH, _HEIGHT = 220, 60
"""Of the small curve, in pixels."""


class Plots:
    """Each method returns a figure, which shows itself in a notebook and saves itself with `save("x.svg")`.

    Besides the methods below, every figure of the page of one run is here by its name, without arguments: staleness,
    gap, timeline, updates, breakdown, confusion, partition and whatever else `dir(run.plot)` lists.
    """

    def __init__(self, run: RunFiles) -> None:
        self._view = FigureView(group([run]))

    def loss(self, against: str | None = None) -> Figure:
        """Held-out and training loss against "samples", "updates", "epochs" or "time" (default: time)."""
        return self._curve("loss", against, "train_loss")

    def accuracy(self, against: str | None = None) -> Figure:
        """Held-out and training accuracy, as `loss`."""
        return self._curve("accuracy", against, "train_accuracy")

    def metric(self, name: str, against: str | None = None) -> Figure:
        """Any column of the metrics, as `loss`."""
        return self._curve(name, against, None)

    def spacetime(self, first: int = SHORT) -> Figure:
        """Who computed, sent and applied the first gradients, so many of them (default: 150)."""
        if not self._view.run.trace().num_rows:
            raise ConfigError("this run has no trace")
        return spacetime_figure(self._view.run, first)

    def __getattr__(self, name: str) -> Callable[[], Figure]:
        entry = figures_of_one().get(name)
        if entry is None:
            raise AttributeError(f"there is no figure {name!r}; there are: {', '.join(self.__dir__())}")

        def draw() -> Figure:
            found = charts({name: entry}, entry.section, self._view)
            if not found:
                raise ConfigError(f"this run has no {entry.needs}")
            return next(iter(found[0].views.values()))

        draw.__name__, draw.__doc__ = name, entry.draw.__doc__
        return draw

    def __dir__(self) -> list[str]:
        return sorted({*figures_of_one(), "loss", "accuracy", "metric", "spacetime"})

    def _curve(self, metric: str, against: str | None, train: str | None) -> Figure:
        run = self._view.run
        chart = curves.chart([self._view.group], metric, train=train, first=run.time_label)
        if chart is None:
            raise ConfigError(f"this run has no {metric!r} in its metrics")
        if against is None:
            return next(iter(chart.views.values()))
        name = run.time_label if against == "time" else against
        if name not in chart.views:
            raise unknown("axis", against, chart.views)
        return chart.views[name]


def html_run(run: RunFiles) -> str:
    """A run in a few lines: what it was, its numbers, a small curve."""
    facts = tiles(run)
    table = html_table([tile.name for tile in facts], [[tile.value for tile in facts]]) if facts else ""
    said = "".join(f"<br>{escape(sentence)}" for sentence in warnings(run))
    head = f"<b>{escape(run.solver)} on {escape(run.task)}</b>, {run.workers} worker{'s' if run.workers > 1 else ''}"
    head += f", seed {run.seed}: {escape(run.status)}{said}"
    return f"<div>{head}{table}{_curve(run)}<br><small>{escape(str(run.path))}</small></div>"


def _curve(run: RunFiles) -> str:
    """The held-out score over time as a line, with its first and last value; nothing where there are none."""
    metric = next((m for m in ("accuracy", "loss") if np.isfinite(run.metric(m)).sum() > 1), None)
    if metric is None:
        return ""
    x, y = run.metric("time"), run.metric(metric)
    seen = np.isfinite(x) & np.isfinite(y)
    x, y = x[seen], y[seen]
    across = (x - x[0]) / (x[-1] - x[0] or 1.0) * (_WIDTH - 4) + 2
    up = (1 - (y - y.min()) / (np.ptp(y) or 1.0)) * (_HEIGHT - 4) + 2
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, up, strict=True))
    line = f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    said = f"{metric_name(metric)} from {number(float(y[0]))} to {number(float(y[-1]))}"
    curve = f'<svg {size} style="display:block" role="img" aria-label="{said}">{line}</svg>'
    return f"{curve}<small>{said}, over {run.time_label}</small>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A plain table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    td = '<td style="white-space:nowrap">'
    body = "".join("<tr>" + "".join(f"{td}{escape(cell(v))}</td>" for v in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
