"""Time to a target, and what more workers bring: speed-up and efficiency, with the ideal beside them."""

from collections.abc import Sequence
from math import floor

import numpy as np

from offbeat.core.budget import Target
from offbeat.report.curves import clocks
from offbeat.report.figure import Axis, Bars, Chart, Figure, Line, Mark, Points
from offbeat.report.groups import Group
from offbeat.report.numbers import known, mean, spread
from offbeat.report.read import RunFiles


def time_to(run: RunFiles, target: Target) -> float | None:
    """Seconds of the run's own clock until the first evaluation that reaches the target."""
    table = run.metrics()
    if target.metric not in table.column_names:
        return None
    return target.time(table.select(["time", target.metric]).to_pylist())


def common_target(groups: Sequence[Group]) -> tuple[Target, bool] | None:
    """The runs' own target where all have the same; else the best value that every run reached, found afterwards."""
    runs = [r for g in groups for r in g.runs]
    own = {str(r.summary.get("target") or "") for r in runs}
    if len(own) == 1 and (text := own.pop()):
        return Target.parse(text), True
    for metric, best, worst, round_to in (
        ("accuracy", np.nanmax, min, lambda v: floor(v * 100) / 100),
        ("loss", np.nanmin, max, lambda v: float(f"{v * 1.0001:.3g}")),
    ):
        values = [r.metric(metric) for r in runs if r.status == "done"]
        if values and all(np.isfinite(v).any() for v in values):
            value = round_to(float(worst(best(v) for v in values)))
            # Whatever is there at the start is no target.
            first = worst(float(v[np.isfinite(v)][0]) for v in values)
            if value > first if metric == "accuracy" else value < first:
                return Target(metric, value), False
    return None


def time_chart(groups: Sequence[Group], target: Target) -> list[Chart]:
    """A bar a group, a dot a seed; one chart for each clock."""
    charts = []
    for clock in clocks(groups):
        mine = [g for g in groups if g.runs[0].clock == clock]
        times = [[time_to(r, target) for r in g.runs] for g in mine]
        reached = [(g, known(t)) for g, t in zip(mine, times, strict=True) if known(t)]
        if not reached:
            continue
        marks: list[Mark] = [
            Bars([g.name], [float(np.mean(t))], "", f"{g.colour.partition('/')[0]}/0.7", width=0.62) for g, t in reached
        ]
        x = [v for _, t in reached for v in t]
        y = [g.name for g, t in reached for _ in t]
        marks.append(Points(x, y, "seeds", "@ink", size=5, legend=False))
        missed = [f"{g.name} ({t.count(None)} of {len(t)})" for g, t in zip(mine, times, strict=True) if None in t]
        shown = missed if len(missed) < 5 else [*missed[:3], f"{len(missed) - 3} more"]
        said = "Bars are means, dots are seeds." + (f" Missed by {', '.join(shown)}." if missed else "")
        title = f"{clock.capitalize()} time to {target}"
        figure = Figure(
            title,
            Axis(f"{clock} time", "s", start=0),
            Axis(categories=tuple(g.name for g, _ in reached), reverse=True),
            tuple(marks),
            stacked=True,
            horizontal=True,
            height=max(200, 110 + 30 * len(reached)),
        )
        charts.append(Chart.of(f"time-to-target-{clock}", figure, said))
    return charts


def speed_up(groups: Sequence[Group], target: Target | None) -> list[Chart]:
    """Against the number of workers, one line a solver; the reference is one worker, or the fewest there are."""
    marks: list[Mark] = []
    shares: list[Mark] = []
    most = 1
    for clock in clocks(groups):
        mine = [g for g in groups if g.runs[0].clock == clock]
        plain = next((_seconds(g, target) for g in mine if g.solver == "plain"), None)
        for solver in dict.fromkeys(g.solver for g in mine if g.solver != "plain"):
            by_workers = _by_workers([g for g in mine if g.solver == solver], target)
            if len(by_workers) < 2:
                continue
            base = min(by_workers)
            reference = plain if plain is not None else by_workers[base][0] * base
            counts = sorted(by_workers)
            ups = np.array([reference / by_workers[w][0] for w in counts])
            most = max(most, counts[-1])
            name = solver if len(clocks(groups)) == 1 else f"{solver} ({clock})"
            colour = next(g.colour for g in mine if g.solver == solver).partition("/")[0]
            marks.append(Line(counts, ups, name, colour, dots=True))
            shares.append(Line(counts, ups / np.array(counts), name, colour, dots=True))
    if not marks:
        return []
    what = f"time to {target}" if target is not None else "time a sample"
    against = "plain SGD on one worker" if any(g.solver == "plain" for g in groups) else "the fewest workers"
    x = Axis("workers", start=0)
    ideal = Line([0, most], [0, most], "ideal", "@faint", "dash", 1.4)
    up = Figure("Speed-up", x, Axis("speed-up", start=0), (*marks, ideal))
    one = Line([0, most], [1, 1], "ideal", "@faint", "dash", 1.4)
    share = Figure("Efficiency", x, Axis("speed-up / workers", percent=True, start=0), (*shares, one))
    said = f"Of the {what}, means over seeds, against {against}."
    if len(groups) > sum(len(np.asarray(m.x)) for m in marks if isinstance(m, Line)) + 1:
        said += " Where a number of workers has several settings, the fastest counts."
    return [Chart.of("speed-up", up, said), Chart.of("efficiency", share, said)]


def _by_workers(groups: Sequence[Group], target: Target | None) -> dict[int, tuple[float, float]]:
    """Mean and spread of the time by number of workers; where several groups have one number, the fastest counts."""
    out: dict[int, tuple[float, float]] = {}
    for g in groups:
        found = _times(g, target)
        middle = mean(found)
        if len(found) < len(g.runs) or not middle:
            continue
        if g.workers not in out or middle < out[g.workers][0]:
            out[g.workers] = (middle, spread(found))
    return out


def _seconds(g: Group, target: Target | None) -> float | None:
    found = _times(g, target)
    return mean(found) if len(found) == len(g.runs) else None


def _times(g: Group, target: Target | None) -> list[float]:
    if target is not None:
        return known([time_to(r, target) for r in g.runs])
    pairs = [(r.seconds, r.summary.get("samples")) for r in g.runs]
    return [t / n for t, n in pairs if t and n]
