"""The page of a reproduction: published and ours side by side, the verdicts, what would flip them, what differs."""

from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from offbeat.lab.papers.beside import Beside, Compared, Panel, beside
from offbeat.lab.papers.claims import claim_row, qualified
from offbeat.lab.papers.landscapes import landscape_charts, landscape_of
from offbeat.lab.papers.line_chart import line_charts
from offbeat.lab.papers.recipe import Recipe
from offbeat.report.draw.figure import Axis, Chart, Figure, Heat
from offbeat.report.figures.loss_surface import read as read_landscape
from offbeat.report.numbers import mean, seconds
from offbeat.report.pages.page import Page, Section
from offbeat.report.tables import Table

if TYPE_CHECKING:
    from offbeat.lab.papers.reproducing import Reproduction


def page(made: "Reproduction") -> Page:
    """Everything about one table or figure."""
    r = made.recipe
    found = made.beside
    rows = [claim_row(r, d) for d in made.decisions]
    small = f"Reduced: {made.reduced}." if made.reduced else ""
    sections = [
        Section("Claims", tables=[_claims(rows)], folded=[_rule(row) for row in rows]),
        Section("As the paper draws it", [] if r.lines is None else line_charts(r, r.lines, found, small)),
        *_landscape(made),
        Section("Side by side", charts(r, found, small), text=small),
        Section("Cell by cell", tables=[cells(r, found)]),
        *_flips(made, rows),
        Section("What differs from the paper", folded=[], text=" ".join(r.differs)),
        Section("Notes on the published numbers", text=" ".join(r.notes)),
    ]
    took = {row["run"]: row["wall_seconds"] for row in made.results if row.get("wall_seconds")}
    foot = f"{len(took)} runs, {seconds(sum(took.values()))} of computing; times in runs are virtual" if took else ""
    return Page(
        title=f"{r.paper}, {r.place}: {r.title}",
        lead=[_lead(made)],
        verdict=[f"{row['verdict'].capitalize()}: “{row['quote']}”" for row in rows],
        warnings=[small] if small else [],
        sections=[s for s in sections if s.charts or s.tables or s.text],
        foot=foot,
    )


def _landscape(made: "Reproduction") -> list[Section]:
    place = landscape_of(made)
    if place is None:
        return []
    found = read_landscape(place)
    said = f"{made.recipe.sizes[made.size].grid} points a side; {found.explained} of the trajectories."
    return [Section("The loss around the trajectories", landscape_charts(found), text=said)]


def table(r: Recipe, found: Beside) -> Table:
    """The paper's own table with ours after each number, for a terminal."""
    columns = [found.row, *(c for c in found.panels[0].columns)]
    rows = []
    for panel in found.panels:
        for name, line in zip(panel.rows, panel.cells, strict=True):
            rows.append([f"{panel.title} {name}".strip(), *(_pair(c) for c in line)])
    said = f"{r.label} ({r.unit}): published | ours, the mean over seeds; {found.column} across"
    return Table("beside", f"{r.place}: {r.title}", columns, rows, said)


def cells(r: Recipe, found: Beside) -> Table:
    """One row a cell that has been run, or all where none has: published, ours, spread, difference, failures."""
    some = any(c.ours for c in found.compared)
    rows: list[Sequence[Any]] = []
    for panel in found.panels:
        for row, line in zip(panel.rows, panel.cells, strict=True):
            for column, c in zip(panel.columns, line, strict=True):
                if some and not c.ours:
                    continue
                bad = f"{c.bad} of {len(c.ours) or c.bad} not converged or failed" if c.bad else ""
                where = f"{panel.title} {row}".strip()
                rows.append([where, column, c.published, c.mean, c.std, len(c.ours), c.difference, bad])
    names = [found.row, found.column, "published", "ours", "std", "seeds", "difference", "runs"]
    said = f"{r.label.capitalize()} ({r.unit}); means and standard deviations over seeds."
    return Table("cells", "Cell by cell", names, rows, said)


def charts(r: Recipe, found: Beside, small: str = "") -> list[Chart]:
    """Published, ours and the difference as heat maps, in one scale; where few numbers are printed, ours alone."""
    printed = [c for c in found.compared if c.published is not None]
    few = bool(2 * len(printed) < len(found.compared) and any(c.ours for c in found.compared))
    known = [v for c in found.compared for v in (c.published, c.mean) if v is not None]
    gaps = [abs(c.difference) for c in found.compared if c.difference is not None]
    low, high, most = min(known, default=0.0), max(known, default=1.0), max(gaps, default=1.0)
    views: list[tuple[str, Callable[[Compared], float | None], float, float, str]] = [
        ("published", lambda c: c.published, low, high, "viridis"),
        ("ours", lambda c: c.mean, low, high, "viridis"),
        ("ours less published", lambda c: c.difference, -most, most, "diverging"),
    ]
    out = []
    for n, panel in enumerate(found.panels):
        for key, value, bottom, top, scale in views:
            if few and key != "ours":
                continue
            if any(value(c) is not None for line in panel.cells for c in line):
                figure = _heat(r, found, panel, f"{panel.title} {key}".strip(), value, (bottom, top, scale))
                crossed = "× marks cells with a run that did not converge. " if key == "ours" else ""
                said = f"{r.label.capitalize()} ({r.unit}), {key}. {crossed}{small if key != 'published' else ''}"
                out.append(Chart.of(f"{key.replace(' ', '-')}-{n}", figure, said.strip()))
    return out


def _heat(
    r: Recipe,
    found: Beside,
    panel: Panel,
    title: str,
    value: Callable[[Compared], float | None],
    scale: tuple[float, float, str],
) -> Figure:
    z = np.array([[nan if (v := value(c)) is None else v for c in line] for line in panel.cells])
    ours = title.endswith("ours")
    texts = [[_written(value(c), ours and c.bad > 0) for c in line] for line in panel.cells]
    low, high, colours = scale
    heat = Heat(list(panel.columns), list(panel.rows), z, r.unit, scale=colours, texts=texts, low=low, high=high)
    return Figure(
        title.capitalize(),
        Axis(found.column, categories=tuple(panel.columns)),
        Axis(found.row, categories=tuple(panel.rows), reverse=True),
        (heat,),
        height=max(260, 110 + 34 * len(panel.rows)),
    )


def _written(value: float | None, crossed: bool) -> str:
    return "" if value is None else f"{_short(value)}{' ×' if crossed else ''}"


def _pair(c: Compared) -> str:
    ours = "–" if c.mean is None else _short(c.mean) + ("×" if c.bad else "")
    return f"{'–' if c.published is None else _short(c.published)} | {ours}"


def _short(value: float) -> str:
    """As many digits as a cell has room for."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3f}"


def _claims(rows: Sequence[dict[str, Any]]) -> Table:
    names = ["claim", "verdict", "holds if", "the paper's own table", "ours [95%]", "seeds"]
    told = [[r["claim"], qualified(r), r["holds_if"], r["own"], _ours(r), r["seeds"]] for r in rows]
    said = "Rules, tolerances and numbers of seeds were fixed before the first run. Verdicts are computed."
    return Table("claims", "Claims", names, told, said)


def _rule(row: dict[str, Any]) -> tuple[str, str]:
    """A claim in the paper's words, with its place and the rule that decides it."""
    note = f"\n{row['note']}" if row["note"] else ""
    return f"{row['claim']}: “{row['quote']}”", f"{row['place']}\n{row['rule']}{note}"


def _ours(row: dict[str, Any]) -> str:
    return row["ours"] or (f"{row['cells']} cells" if row["cells"] else "–")


def _flips(made: "Reproduction", rows: Sequence[dict[str, Any]]) -> list[Section]:
    found = by_variant(made.recipe, made.results, rows)
    return [] if found is None else [Section("What would flip it", tables=[found])]


def by_variant(r: Recipe, results: Sequence[Mapping[str, Any]], rows: Sequence[dict[str, Any]]) -> Table | None:
    """Each claim's statistic in every variant that was run, and the mean accuracy; None where nothing was run."""
    there = [v for v in r.variants if any(row["variant"] == v for row in results)]
    if not there:
        return None
    told = [
        [row["claim"], *(row["ours"] if v == r.main else row["other_variants"].get(v, "") for v in there)]
        for row in rows
    ]
    if r.unit == "%":
        columns = [[c.mean for c in beside(r, results, v).compared] for v in there]
        shared = [cells for cells in zip(*columns, strict=True) if None not in cells]
        means = [mean(column) for column in zip(*shared, strict=True)] or [None] * len(there)
        told.append(
            [
                f"mean {r.label} of the {len(shared)} cells that all have",
                *("–" if m is None else f"{m:.1f}" for m in means),
            ]
        )
    said = " ".join(f"{v}: {r.variants[v].about}" for v in there)
    return Table("variants", "By variant", ["claim", *there], told, said)


def _lead(made: "Reproduction") -> str:
    r = made.recipe
    if not r.runs:
        return "The paper's numbers alone: nothing is run, and its claims are held against its own table."
    there = sum(c.mean is not None for c in made.beside.compared)
    which = f"size {made.size}, variant {r.main}: {r.variants[r.main].about}"
    return f"{there} of {len(made.beside.compared)} cells have a result; {which}"
