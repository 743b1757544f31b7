"""Staleness and gap, from the trace; what staleness does to gradients, from the diagnostics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from offbeat.core.trace import RECEIVED
from offbeat.report.figure import Axis, Bars, Chart, Figure, Line, Mark, Rule
from offbeat.report.groups import Group
from offbeat.report.numbers import normal
from offbeat.report.read import RunFiles, column

_MOST_BARS = 120


@dataclass(frozen=True)
class Delays:
    """How stale the applied gradients of some runs were."""

    counts: NDArray[np.int64]
    """counts[tau] gradients had staleness tau."""
    expected: float | None
    """The mean that theory gives; None where none is known."""

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        return float(np.arange(len(self.counts)) @ self.counts / max(self.total, 1))

    @property
    def std(self) -> float:
        taus = np.arange(len(self.counts))
        return float(np.sqrt(((taus - self.mean) ** 2) @ self.counts / max(self.total, 1)))


def delays(run: RunFiles) -> Delays | None:
    """From a run's trace; None where its method has no versions."""
    trace = run.trace()
    if "staleness" not in trace.column_names:
        return None
    applied = trace.filter(pc.field("applied"))
    taus = applied["staleness"].drop_null().to_numpy()
    if not len(taus):
        return None
    shared = pc.any(pc.equal(applied["outcome"], RECEIVED)).as_py()
    return Delays(np.bincount(np.maximum(taus, 0)), None if shared else _expected(run, len(taus)))


def _expected(run: RunFiles, applied: int) -> float | None:
    """W - 1 where every gradient is an update of its own and every worker always has one under way."""
    updates, waiting = run.summary.get("updates"), run.summary.get("idle_share")
    if updates is None or waiting is None:
        return None
    if run.workers > 1 and updates * run.workers == applied:
        return 0.0  # everybody's gradient in every update: a barrier
    return run.workers - 1.0 if updates == applied and waiting < 0.01 else None


def pooled(runs: Sequence[RunFiles]) -> Delays | None:
    """Several seeds of one configuration together."""
    found = [d for d in map(delays, runs) if d is not None]
    if not found:
        return None
    counts = np.zeros(max(len(d.counts) for d in found), np.int64)
    for d in found:
        counts[: len(d.counts)] += d.counts
    expected = {d.expected for d in found}
    return Delays(counts, expected.pop() if len(expected) == 1 else None)


def histogram(found: Delays, colour: str, title: str = "Staleness of the applied gradients") -> Figure:
    """Shares by staleness, the normal fit and the theoretical mean."""
    size = len(found.counts)
    width = max(1, -(-size // _MOST_BARS))
    edges = np.arange(0, size + width, width)
    counts = np.add.reduceat(found.counts, edges[edges < size])
    centres = edges[: len(counts)] + (width - 1) / 2
    share = counts / found.total / width
    marks: list[Mark] = [Bars(centres, share, "measured", f"{colour}/0.75", width=0.9 * width)]
    if found.std > 0:
        x = np.linspace(max(0.0, found.mean - 4 * found.std), min(size + 0.0, found.mean + 4 * found.std), 160)
        name = f"normal fit: mean {found.mean:.2f}, deviation {found.std:.2f}"
        marks.append(Line(x, normal(x, found.mean, found.std), name, "@ink", width=1.6))
    if found.expected is not None:
        marks.append(Rule(found.expected, f"theory: mean {found.expected:g}", "x"))
    y = Axis("share of gradients" + ("" if width == 1 else ", per update"), start=0)
    return Figure(title, Axis("staleness τ", "updates"), y, tuple(marks))


def histogram_chart(group: Group) -> Chart | None:
    found = pooled(group.runs)
    if found is None:
        return None
    if found.expected is None:
        theory = ""
    elif found.expected == 0:
        theory = " Every update waits for all workers, so nothing is stale."
    else:
        theory = " Theory: W − 1 when every worker always has one gradient under way."
    said = f"Mean {found.mean:.2f}, largest {len(found.counts) - 1}, over {found.total:,} gradients."
    return Chart.of("staleness", histogram(found, group.colour), said + theory)


def by_group(groups: Sequence[Group]) -> Chart | None:
    """Distributions side by side, as lines."""
    marks: list[Mark] = []
    for g in groups:
        found = pooled(g.runs)
        if found is None or found.mean == 0:
            continue
        last = np.flatnonzero(found.counts)[-1] + 1
        taus, share = np.arange(last), found.counts[:last] / found.total
        marks.append(Line(taus, share, g.name, g.colour, g.dash, dots=bool(last <= 60)))
    if not marks:
        return None
    figure = Figure(
        "Staleness of the applied gradients",
        Axis("staleness τ", "updates", start=0),
        Axis("share of gradients", start=0),
        tuple(marks),
        least_names=1,
    )
    return Chart.of("staleness", figure, "Groups whose gradients are never stale are left out.")


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


def diagnostics(run: RunFiles, colour: str) -> list[Chart]:
    """Cosine and norm ratio of stale gradients against fresh ones, by staleness."""
    if not run.has("diagnostics.parquet"):
        return []
    table = run.table("diagnostics.parquet")
    tau = column(table, "staleness")
    charts = []
    kinds = {"cosine": "cosine of stale and fresh gradient", "norm_ratio": "norm of the stale / of the fresh gradient"}
    for name, label in kinds.items():
        value = column(table, name)
        there = np.isfinite(tau) & np.isfinite(value)
        taus = np.unique(tau[there])
        if not len(taus):
            continue
        low, middle, high = np.array([np.quantile(value[there & (tau == t)], (0.1, 0.5, 0.9)) for t in taus]).T
        marks: list[Mark] = [Line(taus, middle, "median", colour, low=low, high=high, dots=len(taus) < 60)]
        marks.append(Rule(1.0, "fresh"))
        figure = Figure(label.capitalize(), Axis("staleness τ", "updates"), Axis(label), tuple(marks))
        said = f"The fresh gradient is taken on the same batch, off the clock, for {int(there.sum()):,} gradients; "
        charts.append(Chart.of(f"stale-{name}", figure, said + "the band holds the middle 80%."))
    return charts
