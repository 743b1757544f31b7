"""Which classes are confused with which, how well each is known, and who has which data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from offbeat.report.figure import Axis, Bars, Chart, Figure, Heat, Mark
from offbeat.report.read import RunFiles
from offbeat.report.style import OKABE_ITO
from offbeat.report.tables import Table

_MOST_WRITTEN = 15


def confusion(run: RunFiles) -> Chart | None:
    """The confusion matrix: rows are the true classes, and sum to one."""
    found = run.json("evaluation.json")
    matrix = None if found is None else found.get("confusion")
    if not matrix:
        return None
    counts = np.asarray(matrix, float)
    names = _names(found, len(counts))
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
    """Precision, recall and F1 of every class."""
    found = run.json("evaluation.json")
    matrix = None if found is None else found.get("confusion")
    if not matrix:
        return None
    counts = np.asarray(matrix, float)
    right, true, said = np.diag(counts), counts.sum(1), counts.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = right / said, right / true
        f1 = 2 * right / (true + said)
    rows = [
        [name, *(None if not np.isfinite(v) else round(float(v), 4) for v in scores), int(n)]
        for name, *scores, n in zip(_names(found, len(counts)), precision, recall, f1, true, strict=True)
    ]
    columns = ("class", "precision", "recall", "F1", "samples")
    return Table("classes", "Per class", columns, rows, "On the held-out samples, with the final parameters.")


def partition(run: RunFiles) -> Chart | None:
    """How many samples of each class each shard holds."""
    found = run.json("partition.json")
    histograms = None if found is None else (found.get("histograms") or found.get("labels"))
    if not histograms:
        return None
    counts = np.asarray(histograms, float)
    names = _names(found, counts.shape[1])
    shards = [f"shard {i}" for i in range(len(counts))]
    marks: list[Mark]
    if counts.shape[1] > 2 * len(OKABE_ITO) or len(shards) > 40:
        marks = [Heat(names, shards, counts, "samples", "@c0")]
        x, flat = Axis("class", categories=tuple(names)), False
    else:
        marks = [
            Bars(shards, counts[:, j], name, f"@c{j % len(OKABE_ITO)}" + ("" if j < len(OKABE_ITO) else "/0.5"))
            for j, name in enumerate(names)
        ]
        x, flat = Axis("samples", start=0), True
    y = Axis(categories=tuple(shards), reverse=True)
    height = min(640, max(240, 130 + 22 * len(shards)))
    figure = Figure("Who has which data", x, y, tuple(marks), stacked=flat, horizontal=flat, height=height)
    sizes = counts.sum(1)
    said = f"{len(shards)} shards of {int(sizes.min()):,} to {int(sizes.max()):,} samples."
    return Chart.of("partition", figure, said)


def _names(found: Mapping[str, Any], count: int) -> list[str]:
    names = found.get("classes")
    given = isinstance(names, list) and len(names) == count
    return [str(n) for n in (names if given and names else range(count))]
