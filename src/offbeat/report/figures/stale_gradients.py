"""Staleness and gap over the time of a run, from the trace; what staleness does to gradients, from the diagnostics."""

import numpy as np
import pyarrow.compute as pc

from offbeat.folders.run_files import RunFiles, column
from offbeat.report.draw.figure import Axis, Chart, Figure, Line, Mark, Rule
from offbeat.report.figures.delay_histogram import delays
from offbeat.report.figures.gallery import FigureView, of_one


def over_time(run: RunFiles, name: str, label: str, colour: str, bins: int = 160) -> Figure | None:
    """A column of the trace against time: the median of what fell into each moment, and the middle 80%."""
    trace = run.trace()
    if name not in trace.column_names:
        return None
    applied = trace.filter(pc.field("applied"))
    time, value = column(applied, "time"), column(applied, name)
    there = np.isfinite(time) & np.isfinite(value)
    time, value = time[there], value[there]
    if not len(value):
        return None
    order = np.argsort(time, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    at = np.array([time[p].mean() for p in parts])
    low, middle, high = np.array([np.quantile(value[p], (0.1, 0.5, 0.9)) for p in parts]).T
    band = len(order) > len(parts)
    line = Line(at, middle, "median", colour, low=low if band else None, high=high if band else None)
    x = Axis(run.time_label, "s", start=0)
    return Figure(label[:1].upper() + label[1:], x, Axis(label), (line,), switches=("y",))


def _nothing_is_stale(run: RunFiles) -> bool:
    """Then the histogram's one sentence says it."""
    found = delays(run)
    return found is not None and len(found.counts) == 1


@of_one("Staleness", 20)
def staleness_over_time(view: FigureView) -> Chart | None:
    """How stale the gradients were that were applied at each moment."""
    drawn = over_time(view.run, "staleness", "staleness τ (updates)", view.group.colour)
    if drawn is None or _nothing_is_stale(view.run):
        return None
    said = "Median over gradients applied at about that time; the band holds the middle 80%."
    return Chart.of("staleness-time", drawn, said)


@of_one("Staleness", 30, needs="gap: nothing is stale, or record.gap=false")
def gap(view: FigureView) -> Chart | None:
    """|x now - x read| over time."""
    drawn = over_time(view.run, "gap", "gap ‖x now − x read‖", view.group.colour)
    if drawn is None or _nothing_is_stale(view.run):
        return None
    return Chart.of("gap", drawn, "How far the parameters moved while a gradient was under way.")


@of_one("Staleness", 40, needs="diagnostics: run with record.diagnose_every=10")
def diagnostics(view: FigureView) -> list[Chart]:
    """Cosine and norm ratio of stale gradients against fresh ones, by staleness."""
    run, colour = view.run, view.group.colour
    table = run.diagnostics()
    tau = column(table, "staleness")
    charts = []
    kinds = {"cosine": ("Cosine of stale and fresh gradient", "cosine")}
    kinds |= {"norm_ratio": ("Norm of the stale / of the fresh gradient", "ratio of norms")}
    for name, (title, label) in kinds.items():
        value = column(table, name)
        there = np.isfinite(tau) & np.isfinite(value)
        taus = np.unique(tau[there])
        if not len(taus):
            continue
        low, middle, high = np.array([np.quantile(value[there & (tau == t)], (0.1, 0.5, 0.9)) for t in taus]).T
        marks: list[Mark] = [Line(taus, middle, "median", colour, low=low, high=high, dots=len(taus) < 60)]
        marks.append(Rule(1.0, "fresh"))
        figure = Figure(title, Axis("staleness τ", "updates"), Axis(label), tuple(marks))
        said = f"The fresh gradient is taken on the same batch, off the clock, for {int(there.sum()):,} gradients; "
        charts.append(Chart.of(f"stale-{name}", figure, said + "the band holds the middle 80%."))
    return charts
