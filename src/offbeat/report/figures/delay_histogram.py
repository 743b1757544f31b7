"""How stale the applied gradients were: the distribution, from the trace."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from offbeat.core.trace import RECEIVED
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Axis, Bars, Chart, Figure, Line, Mark, Rule
from offbeat.report.draw.style import faded
from offbeat.report.figures.gallery import FigureView, of_one, of_several
from offbeat.report.numbers import normal_share

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
    """Shares by staleness, what the normal fit gives the same bins, and the theoretical mean."""
    size = len(found.counts)
    width = max(1, -(-size // _MOST_BARS))
    edges = np.arange(0, size + width, width)
    counts = np.add.reduceat(found.counts, edges[edges < size])
    centres = edges[: len(counts)] + (width - 1) / 2
    marks: list[Mark] = [Bars(centres, counts / found.total, "measured", faded(colour, 0.75), width=0.9 * width)]
    if found.std > 0:
        x = np.linspace(max(0.0, found.mean - 4 * found.std), min(size + 0.0, found.mean + 4 * found.std), 160)
        name = f"normal fit: mean {found.mean:.2f}, deviation {found.std:.2f}"
        marks.append(Line(x, normal_share(x, found.mean, found.std, width), name, "@ink", width=1.6))
    if found.expected is not None:
        marks.append(Rule(found.expected, f"theory: mean {found.expected:g}", "x"))
    y = Axis("share of gradients" + ("" if width == 1 else f", in bins of {width}"), start=0)
    return Figure(title, Axis("staleness τ", "updates"), y, tuple(marks))


@of_one("Staleness", 10)
def staleness(view: FigureView) -> Chart | None:
    """The histogram, with its normal fit and the theoretical mean."""
    found = pooled(view.group.runs)
    if found is None:
        return None
    if found.expected is None:
        theory = ""
    elif found.expected == 0:
        theory = " Every update waits for all workers, so nothing is stale."
    else:
        theory = " Theory: W − 1 when every worker always has one gradient under way."
    said = f"Mean {found.mean:.2f}, largest {len(found.counts) - 1}, over {found.total:,} gradients."
    return Chart.of("staleness", histogram(found, view.group.colour), said + theory)


@of_several("Staleness and norms", 10)
def staleness_by_group(view: FigureView) -> Chart | None:
    """Distributions side by side, as lines."""
    marks: list[Mark] = []
    for g in view.lines:
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
