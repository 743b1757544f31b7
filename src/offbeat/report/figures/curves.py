"""Loss and accuracy against samples, updates and time; norms. One line a group, its band spans the seeds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Axis, Chart, Figure, Line, Mark, Rule
from offbeat.report.figures.gallery import FigureView, of_one, of_several
from offbeat.report.groups import Group, clocks
from offbeat.report.numbers import MOST_POINTS, fewer, metric_name

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def curve(run: RunFiles, x: str, y: str) -> Curve:
    """The points of a run that have both values, no more of them than a picture can show."""
    xs, ys = run.metric(x), run.metric(y)
    there = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
    there = there[fewer(len(there))]
    return xs[there], ys[there]


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
    if any(f.y.end is not None for f in views.values()):
        caption = f"{caption} Who diverged leaves the figure at its top; the logarithmic axis shows all.".strip()
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
    start, end = extent([g.runs for g in groups], metric) or (None, None)
    for g in groups:
        if train is not None:
            marks += _lines(g, x, train, "training" if alone else f"{g.name}, training", "dot", alone)
        marks += _lines(g, x, metric, "held-out" if alone and train else g.name, g.dash, False, top=end)
    if target is not None:
        marks.append(Rule(target, f"target {target:g}"))
    heading = title or metric_name(metric).capitalize()
    y = Axis(metric_name(metric) if train is None else metric.replace("_", " "), start=start, end=end)
    return Figure(heading, axis, y, tuple(marks), unified=len(groups) < 7, switches=("y",))


def extent(runs: Sequence[Sequence[RunFiles]], metric: str) -> tuple[float, float] | None:
    """What a figure shows where some runs diverged: the others' range. None where all fit into one picture."""
    if not any(word in metric for word in ("loss", "norm", "gap")):
        return None  # staleness and accuracy do not grow without bounds
    values = [(r.status == "diverged", r.metric(metric)) for mine in runs for r in mine]
    values = [(diverged, v[np.isfinite(v)]) for diverged, v in values if np.isfinite(v).any()]
    others = [v for diverged, v in values if not diverged]
    if not others or len(others) == len(values):
        return None
    low, high = min(float(v.min()) for v in others), max(float(v.max()) for v in others)
    room = (high - low) or abs(high) or 1.0
    if max(float(v.max()) for _, v in values) <= high + room:
        return None  # nobody is squeezed into less than half of the picture
    return low - 0.05 * room, high + 0.25 * room


def _lines(g: Group, x: str, y: str, name: str, dash: str, muted: bool, top: float | None = None) -> list[Mark]:
    """The mean over seeds, and a band that spans them unless it would cover all that lies below a figure's top."""
    curves = [c for c in (curve(r, x, y) for r in g.runs) if len(c[0])]
    if not curves:
        return []
    colour, width = ("@train", 1.6) if muted else (g.colour, 2.2)
    if len(curves) == 1:
        x_values, y_values = curves[0]
        return [Line(x_values, y_values, name, colour, dash, width, dots=len(x_values) < 10)]
    grid, values = together(curves)
    if top is not None and values.max() > top:
        return [Line(grid, values.mean(0), name, colour, dash, width)]
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


@of_one("Learning", 10)
def loss(view: FigureView) -> Chart | None:
    return _of_one(view, "loss", "Loss", "train_loss")


@of_one("Learning", 20)
def accuracy(view: FigureView) -> Chart | None:
    return _of_one(view, "accuracy", "Accuracy", "train_accuracy")


@of_one("Learning", 30)
def grad_norm(view: FigureView) -> Chart | None:
    return _of_one(view, "grad_norm", "Norm of the gradients")


@of_one("Learning", 40)
def weight_norm(view: FigureView) -> Chart | None:
    return _of_one(view, "weight_norm", "Norm of the weights")


@of_one("Learning", 50, needs="schedule of its learning rate")
def learning_rate(view: FigureView) -> Chart | None:
    moves = len(np.unique(view.run.metric("lr"))) > 1
    return _of_one(view, "lr", "Learning rate") if moves else None


def _of_one(view: FigureView, metric: str, title: str, train: str | None = None) -> Chart | None:
    target, first = view.target(metric), view.run.time_label
    return chart([view.group], metric, train=train, target=target, first=first, title=title)


@of_several("Learning", 10)
def accuracies(view: FigureView) -> Chart | None:
    return _of_several(view, "accuracy", _band(view))


@of_several("Learning", 20)
def losses(view: FigureView) -> Chart | None:
    return _of_several(view, "loss", _band(view))


@of_several("Learning", 30)
def train_losses(view: FigureView) -> Chart | None:
    return _of_several(view, "train_loss")


@of_several("Learning", 40)
def train_accuracies(view: FigureView) -> Chart | None:
    return _of_several(view, "train_accuracy")


@of_several("Staleness and norms", 20)
def grad_norms(view: FigureView) -> Chart | None:
    return _of_several(view, "grad_norm")


@of_several("Staleness and norms", 30)
def weight_norms(view: FigureView) -> Chart | None:
    return _of_several(view, "weight_norm")


@of_several("Staleness and norms", 40)
def mean_staleness(view: FigureView) -> Chart | None:
    return _of_several(view, "staleness", title="Mean staleness")


def _of_several(view: FigureView, metric: str, caption: str = "", title: str | None = None) -> Chart | None:
    target, first = view.target(metric), view.run.time_label
    return chart(view.lines, metric, target=target, first=first, title=title, caption=caption)


def _band(view: FigureView) -> str:
    return "Lines are means over seeds, bands span them." if any(len(g.runs) > 1 for g in view.groups) else ""
