"""Time to a target, and what more workers bring: speed-up and efficiency, with the ideal beside them."""

from collections.abc import Sequence

import numpy as np

from offbeat.core.budget import Target
from offbeat.report.draw.figure import Axis, Bars, Chart, Figure, Line, Mark, Points
from offbeat.report.draw.style import faded
from offbeat.report.figures.gallery import FigureView, of_several
from offbeat.report.groups import Group, clocks
from offbeat.report.numbers import known, listed, mean
from offbeat.report.targets import reference, time_to


@of_several("Time", 10)
def time_to_target(view: FigureView) -> list[Chart]:
    """A bar a group, a dot a seed; one chart for each clock."""
    groups, target = view.bars, view.goal
    if target is None:
        return []
    charts = []
    for clock in clocks(groups):
        mine = [g for g in groups if g.runs[0].clock == clock]
        times = [[time_to(r, target) for r in g.runs] for g in mine]
        reached = [(g, known(t)) for g, t in zip(mine, times, strict=True) if known(t)]
        if not reached:
            continue
        marks: list[Mark] = [
            Bars([g.name], [float(np.mean(t))], "", faded(g.colour, 0.7), width=0.62) for g, t in reached
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


@of_several("Time", 30)
def speed_up(view: FigureView) -> list[Chart]:
    """Against the number of workers, one line a solver; of the time to the target, else of the time a sample takes."""
    groups, target = view.groups, view.goal
    marks: list[Mark] = []
    shares: list[Mark] = []
    most, against, least = 1, [], 1
    for clock in clocks(groups):
        mine = [g for g in groups if g.runs[0].clock == clock]
        times = [_times(g, target) for g in mine]
        first = reference([g.solver for g in mine], times)
        if first is None:
            continue
        unit, base = mean(times[first]) or 1.0, mine[first].workers
        for solver in dict.fromkeys(g.solver for g in mine if g.solver != "plain"):
            ups = _by_workers([(g, t) for g, t in zip(mine, times, strict=True) if g.solver == solver], unit)
            if len(ups) < 2:
                continue
            counts = sorted(ups)
            up = np.array([ups[w] for w in counts])
            name = solver if len(clocks(groups)) == 1 else f"{solver} ({clock})"
            colour = next(g.colour for g in mine if g.solver == solver)
            marks.append(Line(counts, up, name, colour, dots=True))
            shares.append(Line(counts, up * base / np.array(counts), name, colour, dots=True))
            most, least = max(most, counts[-1]), base
            against.append(f"{mine[first].name}{'' if base > 1 else ' on one worker'}")
    if not marks:
        return []
    what = f"time to {target}" if target is not None else "time a sample"
    x = Axis("workers", start=0)
    ideal = Line([0, most], [0, most / least], "ideal", "@faint", "dash", 1.4)
    up_figure = Figure("Speed-up", x, Axis("speed-up", start=0), (*marks, ideal))
    one = Line([0, most], [1, 1], "ideal", "@faint", "dash", 1.4)
    label = "speed-up / workers" if least == 1 else f"speed-up / (workers / {least})"
    share = Figure("Efficiency", x, Axis(label, percent=True, start=0), (*shares, one))
    said = f"Of the {what}, means over seeds, against {listed(list(dict.fromkeys(against)))}."
    if len(groups) > sum(len(np.asarray(m.x)) for m in marks if isinstance(m, Line)) + 1:
        said += " Where a number of workers has several settings, the fastest counts."
    return [Chart.of("speed-up", up_figure, said), Chart.of("efficiency", share, said)]


def _by_workers(groups: Sequence[tuple[Group, Sequence[float | None]]], unit: float) -> dict[int, float]:
    """Speed-up by number of workers; where several groups have one number, the fastest counts."""
    out: dict[int, float] = {}
    for g, times in groups:
        if all(times):
            out[g.workers] = max(out.get(g.workers, 0.0), unit / (mean(times) or 1.0))
    return out


def _times(g: Group, target: Target | None) -> list[float | None]:
    if target is not None:
        return [time_to(r, target) for r in g.runs]
    pairs = [(r.seconds, r.summary.get("samples")) for r in g.runs]
    return [t / n if t and n else None for t, n in pairs]
