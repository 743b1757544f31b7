"""Which classes are confused with which, how well each is known, and who has which data."""

from typing import Any

import numpy as np

from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Axis, Bars, Chart, Figure, Heat, Mark
from offbeat.report.draw.style import OKABE_ITO
from offbeat.report.figures.gallery import FigureView, of_one
from offbeat.report.tables import Table

_MOST_WRITTEN = 15


def scores(run: RunFiles) -> dict[str, Any] | None:
    """The final evaluation by class, on the test set where there is one, else on the validation set."""
    found = run.evaluation
    held_out = next((found[which] for which in ("test", "validation") if which in found), None)
    return held_out if held_out and held_out.get("confusion") else None


@of_one("Classes and data", 10, needs="evaluation by class")
def confusion(view: FigureView) -> Chart | None:
    """The confusion matrix: rows are the true classes, and sum to one."""
    found = scores(view.run)
    if found is None:
        return None
    counts = np.asarray(found["confusion"], float)
    names = [str(n) for n in found["classes"]]
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    written = [[f"{int(c)}" if c else "" for c in row] for row in counts] if len(counts) <= _MOST_WRITTEN else None
    heat = Heat(names, names, share, "share of the true class", "@c0", texts=written, low=0.0, high=1.0)
    figure = Figure(
        "Confusion matrix",
        Axis("predicted class", categories=tuple(names)),
        Axis("true class", categories=tuple(names), reverse=True),
        (heat,),
        height=420,
    )
    right = float(np.trace(counts) / max(counts.sum(), 1))
    said = f"{int(counts.sum()):,} held-out samples, {right:.2%} right. Cells hold counts; shades are shares of a row."
    return Chart.of("confusion", figure, said)


def per_class(run: RunFiles) -> Table | None:
    """Precision, recall and F1 of every class, and their plain means."""
    found = scores(run)
    if found is None:
        return None
    rows = [
        [str(name), *(round(float(v), 4) for v in values), int(n)]
        for name, *values, n in zip(
            *(found[k] for k in ("classes", "precision", "recall", "f1", "support")), strict=True
        )
    ]
    means = [round(float(found[f"mean_{k}"]), 4) for k in ("precision", "recall", "f1")]
    columns = ("class", "precision", "recall", "F1", "samples")
    said = "On the held-out samples, with the final parameters. The last row holds plain means over the classes."
    return Table("classes", "Per class", columns, [*rows, ["mean", *means, sum(r[-1] for r in rows)]], said)


@of_one("Classes and data", 20, needs="partition by class")
def partition(view: FigureView) -> Chart | None:
    """How many samples of each class each worker can draw."""
    found = view.run.partition
    if not found.get("histograms") or set(found.get("sizes", ())) == {found.get("samples")}:
        return None  # no labels, or everybody draws from everything
    counts = np.asarray(found["histograms"], float)
    names = [str(n) for n in found.get("names") or found["labels"]]
    owners = [f"worker {i}" for i in range(len(counts))]
    marks: list[Mark]
    if counts.shape[1] > 2 * len(OKABE_ITO) or len(owners) > 40:
        marks = [Heat(names, owners, counts, "samples", "@c0")]
        x, flat = Axis("class", categories=tuple(names)), False
    else:
        marks = [
            Bars(owners, counts[:, j], name, f"@c{j % len(OKABE_ITO)}" + ("" if j < len(OKABE_ITO) else "/0.5"))
            for j, name in enumerate(names)
        ]
        x, flat = Axis("samples", start=0), True
    y = Axis(categories=tuple(owners), reverse=True)
    height = min(640, max(240, 130 + 22 * len(owners)))
    figure = Figure("Who has which data", x, y, tuple(marks), stacked=flat, horizontal=flat, height=height)
    sizes = counts.sum(1)
    said = f"Workers draw from {int(sizes.min()):,} to {int(sizes.max()):,} samples."
    if found.get("mean_label_skew") is not None:
        said += f" Label skew {found['mean_label_skew']:.2f}: 0 is everybody's mixture, towards 1 one label each."
    return Chart.of("partition", figure, said)
