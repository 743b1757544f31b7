"""Who computed, sent and applied which gradient, with staleness labels: tosi2022, Figure 1. For short schedules."""

from typing import Any

import numpy as np
import pyarrow.compute as pc

from offbeat.core.trace import APPLIED, RECEIVED
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Arrows, Axis, Chart, Figure, Mark, Points, Spans
from offbeat.report.draw.style import OKABE_ITO
from offbeat.report.figures.gallery import FigureView, of_one
from offbeat.report.numbers import seconds

SHORT = 150
"""Rows of a trace that can still be read one by one."""
_EDGE = 0.15  # half the height of a bar
_LETTER = 0.017  # of a label, in column width, as a share of the axis


@of_one("Workers", 20, needs="trace")
def spacetime(view: FigureView) -> Chart | None:
    """For the page: only where the whole schedule can be read."""
    run = view.run
    if not 0 < run.trace().num_rows <= SHORT:
        return None
    said = (
        "Bars are gradients being computed, arrows carry them to where they are applied; numbers are their staleness, "
        "where there is room for them."
    )
    return Chart.of("spacetime", figure(run), said, wide=True)


def figure(run: RunFiles, first: int = SHORT) -> Figure:
    """The first so many rows of the trace, in order of time."""
    trace = run.trace()
    if trace.num_rows > first:
        trace = trace.take(pc.select_k_unstable(trace, first, [("time", "ascending")]))
    rows = sorted(trace.to_pylist(), key=lambda r: r["time"])
    workers = sorted({r["worker"] for r in rows})
    between_peers = any(r["outcome"] == RECEIVED for r in rows)
    server = -1.0
    marks: list[Mark] = []
    origin = {(r["source"], r["draw"]): r for r in rows if r["outcome"] == APPLIED}
    for n, w in enumerate(workers):
        hue = f"@c{n % len(OKABE_ITO)}"
        mine = [r for r in rows if r["worker"] == w and r["outcome"] != RECEIVED]
        notes = [_note(r) for r in mine]
        length = [r["computed"] - r["started"] for r in mine]
        marks.append(
            Spans([float(w)] * len(mine), [r["started"] for r in mine], length, f"worker {w}", hue, notes, 0.3)
        )
        if between_peers:
            sent = [(origin.get((r["source"], r["draw"])), r) for r in rows if r["outcome"] == RECEIVED]
            hops = [(a["computed"], w - _EDGE, r["time"], _above(r)) for a, r in sent if a and a["worker"] == w]
            if hops:
                marks.append(_arrows(hops, hue))
        else:
            there = [(r["computed"], w - _EDGE, r["time"], server) for r in mine if r["outcome"] == APPLIED]
            if there:
                marks.append(_arrows(there, hue))
    ends = [r for r in rows if r["applied"]]
    lane = [_above(r) if between_peers else server for r in ends]
    end = 1.02 * max(r["time"] for r in rows)
    labels = _labels(ends, lane, _LETTER * end)
    marks.append(Points([r["time"] for r in ends], lane, "applied, with its staleness", "@ink", 5, labels=labels))
    ticks = [(float(w), f"worker {w}") for w in workers]
    y = Axis(
        ticks=tuple(ticks if between_peers else [(server, "server"), *ticks]),
        start=max(workers) + 0.6,
        end=(min(workers) - 0.8) if between_peers else -1.8,
    )
    x = Axis(run.time_label, "s", start=0, end=end)
    height = 150 + 44 * (len(workers) + 1)
    return Figure("Who computed, sent and applied what", x, y, tuple(marks), stacked=True, height=height)


def _note(r: dict[str, Any]) -> str:
    said = f"worker {r['worker']}, batch {r['draw']}: {seconds(r['computed'] - r['started'])}, {r['outcome']}"
    return said if r["staleness"] is None else f"{said}, staleness {r['staleness']}"


def _labels(ends: list[dict[str, Any]], lane: list[float], letter: float) -> list[str]:
    """Staleness beside each point; what is applied at one place at the same instant shares a label, in order.

    A label that would run into the one before it is left out; a letter takes so many seconds.
    """
    together: dict[tuple[float, float], list[int]] = {}
    for k, (r, at) in enumerate(zip(ends, lane, strict=True)):
        if r["staleness"] is not None:
            together.setdefault((at, r["time"]), []).append(k)
    labels = [""] * len(ends)
    free: dict[float, float] = {}  # from when on there is room in a lane
    for (at, time), ks in together.items():
        ages = [ends[k]["staleness"] for k in ks]
        alike = len(ages) > 1 and len(set(ages)) == 1
        label = f"{len(ages)} x {ages[0]}" if alike else ", ".join(map(str, ages))
        half = letter * (len(label) + 0.6) / 2
        if time - half >= free.get(at, -half):
            labels[ks[0]], free[at] = label, time + half
    return labels


def _above(row: dict[str, Any]) -> float:
    """Where a model applies what it receives: just above its lane, so that the number can be read."""
    return float(row["worker"]) - 0.3


def _arrows(hops: list[tuple[float, float, float, float]], colour: str) -> Arrows:
    x0, y0, x1, y1 = np.array(hops).T
    return Arrows(x0, y0, x1, y1, "", colour)
