"""Loss and accuracy against samples, updates and time; norms. One line a group, its band spans the seeds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.report.figure import Axis, Chart, Figure, Line, Mark, Rule
from offbeat.report.groups import Group
from offbeat.report.numbers import MOST_POINTS, fewer
from offbeat.report.read import RunFiles

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]

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
    return _NAMES.get(metric, metric.replace("_", " "))


def curve(run: RunFiles, x: str, y: str) -> Curve:
    """The points of a run that have both values, no more of them than a picture can show."""
    xs, ys = run.metric(x), run.metric(y)
    there = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
    there = there[fewer(len(there))]
    return xs[there], ys[there]


def clocks(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(r.clock for g in groups for r in g.runs))


def against(groups: Sequence[Group]) -> dict[str, tuple[str, Axis]]:
    """What curves can be drawn against. Virtual and wall seconds never share an axis."""
    out: dict[str, tuple[str, Axis]] = {}
    if all(np.isfinite(r.metric("epoch")).any() for g in groups for r in g.runs):
        out["epochs"] = ("epoch", Axis("epochs over all workers", start=0))
    out["samples"] = ("samples", Axis("samples", start=0))
    out["updates"] = ("updates", Axis("updates", start=0))
    for clock in clocks(groups):
        out[f"{clock} time"] = ("time", Axis(f"{clock} time", "s", start=0))
    return out


def has(groups: Sequence[Group], metric: str) -> bool:
    return any(np.isfinite(r.metric(metric)).any() for g in groups for r in g.runs)


def chart(
    groups: Sequence[Group],
    metric: str,
    *,
    train: str | None = None,
    target: float | None = None,
    first: str | None = None,
    title: str | None = None,
    caption: str = "",
) -> Chart | None:
    """A metric against everything it can be drawn against; None where no run has it."""
    groups = [g for g in groups if has([g], metric)]
    if not groups:
        return None
    views = {}
    for label, (x, axis) in against(groups).items():
        mine = [g for g in groups if x != "time" or g.runs[0].clock == label.partition(" ")[0]]
        views[label] = figure(mine, x, axis, metric, train=train, target=target, title=title)
    if first in views:
        views = {first: views[first], **views}
    return Chart(f"curve-{metric}", title or metric_name(metric).capitalize(), views, caption)


def figure(
    groups: Sequence[Group],
    x: str,
    axis: Axis,
    metric: str,
    *,
    train: str | None = None,
    target: float | None = None,
    title: str | None = None,
) -> Figure:
    """One metric, and the same on the training batches where `train` names it."""
    marks: list[Mark] = []
    alone = len(groups) == 1
    for g in groups:
        if train is not None:
            marks += _lines(g, x, train, "training" if alone else f"{g.name}, training", "dot", alone)
        marks += _lines(g, x, metric, "held-out" if alone and train else g.name, g.dash, False)
    if target is not None:
        marks.append(Rule(target, f"target {target:g}"))
    heading = title or metric_name(metric).capitalize()
    y = Axis(metric_name(metric) if train is None else metric.replace("_", " "))
    return Figure(heading, axis, y, tuple(marks), unified=len(groups) < 7, switches=("y",))


def _lines(g: Group, x: str, y: str, name: str, dash: str, muted: bool) -> list[Mark]:
    curves = [c for c in (curve(r, x, y) for r in g.runs) if len(c[0])]
    if not curves:
        return []
    colour, width = ("@train", 1.6) if muted else (g.colour, 2.2)
    if len(curves) == 1:
        x_values, y_values = curves[0]
        return [Line(x_values, y_values, name, colour, dash, width, dots=len(x_values) < 10)]
    grid, values = together(curves)
    return [Line(grid, values.mean(0), name, colour, dash, width, low=values.min(0), high=values.max(0))]


def together(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Curves of several seeds on one grid, as far as all of them go."""
    begin, end = max(c[0][0] for c in curves), min(c[0][-1] for c in curves)
    points = min(MOST_POINTS // 2, max(len(c[0]) for c in curves))
    if all(np.array_equal(c[0], curves[0][0]) for c in curves):
        grid = curves[0][0]
    else:
        grid = np.linspace(begin, max(begin, end), max(points, 2))
    return grid, np.stack([np.interp(grid, *c) for c in curves])
