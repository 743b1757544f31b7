"""The page of several runs, compared."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

from offbeat.core.budget import Target
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Chart
from offbeat.report.figures import grids
from offbeat.report.figures.gallery import MOST_LINES, FigureView, charts, figures_of_several
from offbeat.report.groups import Group, by_clock, clocks, group
from offbeat.report.pages.outcomes import differences, listing, outcomes
from offbeat.report.pages.page import Page, Section
from offbeat.report.tables import Table
from offbeat.report.targets import find_target
from offbeat.report.verdict import verdict

T = TypeVar("T", Chart, Table)


def page(
    runs: Sequence[RunFiles],
    *,
    target: str | None = None,
    title: str | None = None,
    grid: grids.Grid | None = None,
    over: Sequence[str] = (),
    metric: str | None = None,
) -> Page:
    """Groups of runs that differ in more than their seed, side by side; `over` names keys for heat maps or lines."""
    groups = sorted(group(runs), key=lambda g: g.solver != "plain")  # the reference comes first
    goal, given, why = find_target(groups, target)
    apart = by_clock(groups)
    views = {clock: FigureView(mine, goal) for clock, mine in apart.items()}
    settings = Section("Over the settings", _settings(apart, grid, over, metric))
    outcome = Section("Outcome", tables=[_of_clock(outcomes(mine, goal), c, apart) for c, mine in apart.items()])
    sections = [
        *([settings, outcome] if len(groups) > MOST_LINES else [outcome, settings]),
        _section("Learning", views, _too_many(apart)),
        _section("Time", views, why or ("" if given or goal is None else _afterwards(goal))),
        _section("Staleness and norms", views),
        Section("Runs", tables=[differences(groups), listing(runs, groups, goal)]),
    ]
    return Page(
        title=title or _title(groups),
        lead=[said(runs, groups)],
        verdict=verdict(groups, goal, given),
        warnings=warnings(runs),
        sections=[s for s in sections if s.charts or s.tables],
        foot=f"{len(runs)} runs · times are {' or '.join(clocks(groups))}",
        colours={g.name: g.colour for g in groups},
    )


def _section(title: str, views: Mapping[str, FigureView], text: str = "") -> Section:
    """What is virtual and what is real beside each other, in figures of their own."""
    drawn = {clock: charts(figures_of_several(), title, view) for clock, view in views.items()}
    rows = zip_longest(*([_of_clock(c, clock, views) for c in found] for clock, found in drawn.items()))
    return Section(title, [c for row in rows for c in row if c is not None], text=text)


def _settings(
    apart: Mapping[str, Sequence[Group]], grid: grids.Grid | None, over: Sequence[str], metric: str | None
) -> list[Chart]:
    if grid is not None:
        return grids.charts(grid, over, metric)
    out = []
    for clock, mine in apart.items():
        found = grids.charts(grids.of_runs([r for g in mine for r in g.runs]), over, metric)
        out += [_of_clock(c, clock, apart) for c in found]
    return out


def _of_clock(made: T, clock: str, apart: Mapping[str, object]) -> T:
    """A chart or table by its clock's name, where there are two."""
    if len(apart) == 1:
        return made
    title = made.title if clock in made.title.lower() else f"{made.title} ({clock})"
    return replace(made, key=f"{made.key.removesuffix(f'-{clock}')}-{clock}", title=title)


def said(runs: Sequence[RunFiles], groups: Sequence[Group]) -> str:
    """What was run, in words."""
    tasks = list(dict.fromkeys(r.task for r in runs))
    seeds = sorted({len(g.runs) for g in groups})
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    plural = "" if each == "1" else "s"
    counts = sorted({g.workers for g in groups})
    on = f"{counts[0]}" if len(counts) == 1 else f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"
    text = f"{len(runs)} runs of {' and '.join(tasks)}: {len(groups)} group{'s' if len(groups) > 1 else ''}, "
    text += f"{each} seed{plural} each, on {on} worker{'' if on == '1' else 's'}. "
    names = [g.name for g in groups]
    return text + (f"Compared are {', '.join(names[:-1])} and {names[-1]}." if 1 < len(names) <= 8 else "")


def warnings(runs: Sequence[RunFiles]) -> list[str]:
    counts = Counter(r.status for r in runs if r.status != "done")
    out = [f"{n} of {len(runs)} runs: {status}." for status, n in counts.items()]
    stalled = sum(bool(r.summary.get("stalled")) for r in runs)
    if stalled:
        out.append(f"{stalled} of {len(runs)} runs stalled: no better than always naming the commonest class.")
    troubled = [r for r in runs if r.summary.get("incidents")]
    if troubled:
        first = f"{troubled[0].place}: {troubled[0].summary['incidents'][0]}"
        out.append(f"{len(troubled)} of {len(runs)} runs had incidents on their way, such as {first}.")
    return out


def _title(groups: Sequence[Group]) -> str:
    tasks = list(dict.fromkeys(g.runs[0].task for g in groups))
    solvers = list(dict.fromkeys(g.solver for g in groups))
    shown = f"{', '.join(solvers[:-1])} and {solvers[-1]}" if len(solvers) > 1 else solvers[0]
    return f"{shown if len(solvers) < 7 else f'{len(solvers)} solvers'} on {' and '.join(tasks)}"


def _too_many(apart: Mapping[str, Sequence[Group]]) -> str:
    most = max(apart.values(), key=len)
    return "" if len(most) <= MOST_LINES else f"The best {MOST_LINES} of {len(most)} groups are drawn."


def _afterwards(goal: Target) -> str:
    return f"No target was set; {goal} is the best that every finished run reached."
