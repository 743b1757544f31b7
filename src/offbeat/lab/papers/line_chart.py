"""A figure of a paper in the paper's own axes: lines along one axis of its table, published and ours."""

from collections.abc import Sequence

from offbeat.lab.papers.beside import Beside, Compared, Panel
from offbeat.lab.papers.recipe import Lines, Recipe
from offbeat.report.draw.figure import Axis, Chart, Figure, Line, Mark
from offbeat.report.draw.style import variants


def line_charts(r: Recipe, lines: Lines, found: Beside, small: str = "") -> list[Chart]:
    """One for each panel; `small` says what was reduced."""
    said = f"{r.label.capitalize()} ({r.unit}). Ours solid, their span over seeds shaded; published dashed. {small}"
    return [
        Chart.of(f"lines-{n}", _figure(r, lines, found, panel), said.strip())
        for n, panel in enumerate(found.panels)
        if any(c.ours or c.published is not None for row in panel.cells for c in row)
    ]


def _figure(r: Recipe, lines: Lines, found: Beside, panel: Panel) -> Figure:
    cells = panel.cells if lines.along == found.column else list(zip(*panel.cells, strict=True))
    names, along = panel.rows, panel.columns
    if lines.along != found.column:
        names, along = along, names
    places = _places(along)
    marks: list[Mark] = []
    for name, row, (colour, _) in zip(names, cells, variants("", len(names), alone=True), strict=True):
        marks += _ours(places, row, name, colour)
        marks += _published(places, row, name, colour)
    ticks = tuple(zip(places, along, strict=True))
    x = Axis(lines.along, log="x" in lines.log, ticks=ticks)
    return Figure(
        panel.title or r.title,
        x,
        Axis(r.label, r.unit, log="y" in lines.log, start=None if "y" in lines.log else 0.0),
        tuple(marks),
        unified=True,
        height=360,
        least_names=1,
    )


def _places(values: Sequence[str]) -> list[float]:
    """Where values lie on their axis: as numbers, or one after another where they are words."""
    try:
        return [float(v) for v in values]
    except ValueError:
        return [float(k) for k in range(len(values))]


def _ours(places: Sequence[float], row: Sequence[Compared], name: str, colour: str) -> list[Mark]:
    there = [(x, c.mean, min(c.ours), max(c.ours)) for x, c in zip(places, row, strict=True) if c.mean is not None]
    if not there:
        return []
    x, mean, low, high = zip(*there, strict=True)
    return [Line(x, mean, name, colour, low=low, high=high, dots=True)]


def _published(places: Sequence[float], row: Sequence[Compared], name: str, colour: str) -> list[Mark]:
    there = [(x, c.published) for x, c in zip(places, row, strict=True) if c.published is not None]
    if not there:
        return []
    x, y = zip(*there, strict=True)
    return [Line(x, y, f"{name}, published", colour, dash="dash", width=1.4, dots=True)]
