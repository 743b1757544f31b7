"""A metric over swept keys: heat maps over two, small multiples over a third, lines with spread over one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offbeat.core.errors import ConfigError, StoreError, unknown
from offbeat.folders.parquet import read_results
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Axis, Chart, Figure, Heat, Line, Mark, Points
from offbeat.report.draw.style import DASHES, OKABE_ITO, solver_colours
from offbeat.report.numbers import known, mean, number
from offbeat.report.read import tidy

Row = Mapping[str, Any]
_MOST_PANELS = 12
_MOST_WRITTEN = 80

# Outcomes that one may want to see over a grid.
METRICS = ("accuracy", "loss", "best", "time_to_target", "virtual_seconds", "mean_staleness", "idle_share", "updates")


@dataclass(frozen=True)
class Grid:
    """Rows of a sweep, and the keys that were swept, those with most values first."""

    rows: Sequence[Row]
    keys: Sequence[str]

    def values(self, key: str) -> list[Any]:
        found = {row.get(key) for row in self.rows} - {None}
        return sorted(found, key=lambda v: (isinstance(v, str), v))


def of_results(path: Path) -> Grid:
    """A sweep's results.parquet; the swept keys are the columns before the seed."""
    table = read_results(path.parent, path.name)
    if "seed" not in table.column_names:
        raise StoreError(f"{path} is not the table of a sweep: it has no column 'seed'")
    names = table.column_names
    return _grid(table.to_pylist(), names[: names.index("seed")])


def of_runs(runs: Sequence[RunFiles]) -> Grid:
    """Runs that differ in some keys of their configuration."""
    rows = [tidy(r) for r in runs]
    names = [k for k in dict.fromkeys(k for row in rows for k in row) if "." in k or k in ("solver", "workers")]
    names = [k for k in names if not k.startswith(("record.", "cluster.workers"))]
    return _grid(rows, names)


def _grid(rows: Sequence[Row], names: Sequence[str]) -> Grid:
    grid = Grid(rows, ())
    counts = {k: len(grid.values(k)) for k in names}
    keys = [k for k in names if counts[k] > 1]
    # Keys that another one determines (a learning rate tuned for each solver) are not swept by themselves.
    free: list[str] = []
    for key in sorted(keys, key=lambda k: -counts[k]):
        before = {tuple(str(r.get(k)) for k in free) for r in rows}
        after = {tuple(str(r.get(k)) for k in [*free, key]) for r in rows}
        if len(after) > len(before):
            free.append(key)
    return Grid(rows, free)


def charts(grid: Grid, over: Sequence[str] = (), metric: str | None = None) -> list[Chart]:
    """For the page of several runs: over the keys that are asked for, else whatever the settings allow."""
    if over:
        metric = metric or default_metric(grid) or "accuracy"
        if len(over) == 1:
            return [lines(grid, over[0], metric)]
        return heat_maps(grid, over[0], over[1], metric, over[2] if len(over) > 2 else None)
    numeric = [k for k in grid.keys if all(isinstance(v, int | float) for v in grid.values(k)) and k != "workers"]
    if not numeric or len(grid.rows) < 3:
        return []
    metric = metric or default_metric(grid)
    if metric is None:
        return []
    if len(grid.keys) == 1:
        return [lines(grid, numeric[0], metric)]
    others = [k for k in grid.keys if k != numeric[0]]
    out = heat_maps(grid, numeric[0], others[0], metric, others[1] if len(others) > 1 else None)
    if len(others) == 1 and len(grid.values(others[0])) <= len(OKABE_ITO):
        out.append(lines(grid, numeric[0], metric, others[0]))
    return out


def default_metric(grid: Grid) -> str | None:
    return next((m for m in ("accuracy", "loss") if any(row.get(m) is not None for row in grid.rows)), None)


def check(grid: Grid, metric: str, *keys: str | None) -> None:
    """Keys and metric must be columns."""
    columns = list(dict.fromkeys(k for row in grid.rows for k in row))
    for key in keys:
        if key is not None and key not in columns:
            raise unknown("key of these runs", key, grid.keys or columns)
    if metric not in columns:
        raise unknown("metric", metric, [m for m in METRICS if m in columns])
    if not known([row.get(metric) if isinstance(row.get(metric), int | float) else None for row in grid.rows]):
        raise ConfigError(f"no run has a value of {metric!r}")


def heat_maps(grid: Grid, x: str, y: str, metric: str, panel: str | None = None) -> list[Chart]:
    """Means over seeds in cells; one map a value of `panel`, all in one scale.

    Cells with a run that diverged or failed have no value, and those that stalled keep it; both are crossed.
    """
    check(grid, metric, x, y, panel)
    panels = [None] if panel is None else grid.values(panel)[:_MOST_PANELS]
    xs, ys = grid.values(x), grid.values(y)
    cells = {p: _cells(grid, x, y, metric, panel, p, xs, ys) for p in panels}
    finite = np.concatenate([z[np.isfinite(z)] for z, _, _ in cells.values()])
    if not len(finite):
        raise ConfigError(f"no run has a value of {metric!r}")
    out = []
    # Losses over many decades: colours follow the logarithm, the numbers in the cells do not.
    log = bool(finite.min() > 0 and finite.max() > 1000 * finite.min())
    low, high = (float(np.log10(v)) if log else float(v) for v in (finite.min(), finite.max()))
    for n, (p, (z, bad, notes)) in enumerate(cells.items()):
        # A number that is written carries its cross beside it: one that lay on it could not be read.
        written = [[_written(v, c) for v, c in zip(*rows, strict=True)] for rows in zip(z, bad, strict=True)]
        legible = z.size <= _MOST_WRITTEN
        heat = Heat(
            [_tick(v) for v in xs],
            [_tick(v) for v in ys],
            np.log10(z) if log else z,
            f"{metric.replace('_', ' ')}{' (log10)' if log else ''}",
            texts=written if legible else None,
            crossed=bad & ~np.isfinite(z) if legible else bad,
            low=low,
            high=high,
        )
        name = metric.replace("_", " ").capitalize() if p is None else f"{panel} = {_tick(p)}"
        figure = Figure(
            name,
            Axis(x, categories=tuple(_tick(v) for v in xs)),
            Axis(y, categories=tuple(_tick(v) for v in ys)),
            (heat,),
            height=max(240, 110 + 34 * len(ys)),
        )
        said = f"{metric.replace('_', ' ').capitalize()}, mean over seeds."
        said += f" × marks cells where a run {' or '.join(notes)}." if notes else ""
        out.append(Chart.of(f"heat-{n}", figure, said))
    return out


def _written(value: float, crossed: bool) -> str:
    return f"{number(value, 3)}{' ×' if crossed else ''}" if np.isfinite(value) else ""


def _cells(
    grid: Grid, x: str, y: str, metric: str, panel: str | None, value: Any, xs: Sequence[Any], ys: Sequence[Any]
) -> tuple[Any, Any, list[str]]:
    z, bad = np.full((len(ys), len(xs)), np.nan), np.zeros((len(ys), len(xs)), bool)
    notes: set[str] = set()
    for i, at_y in enumerate(ys):
        for j, at_x in enumerate(xs):
            mine = [r for r in grid.rows if r.get(x) == at_x and r.get(y) == at_y]
            mine = mine if panel is None else [r for r in mine if r.get(panel) == value]
            trouble = {t for t in (_trouble(r) for r in mine) if t is not None}
            found = None if trouble - {"stalled"} else mean([r.get(metric) for r in mine])
            z[i, j] = np.nan if found is None else found
            bad[i, j] = bool(trouble)
            notes |= trouble
    return z, bad, sorted(notes)


def _trouble(row: Row) -> str | None:
    if row.get("status") in ("diverged", "failed"):
        return str(row["status"])
    return "stalled" if row.get("stalled") else None


def lines(grid: Grid, x: str, metric: str, by: str | None = None) -> Chart:
    """A metric over one key: means over seeds, bands from the least to the largest."""
    check(grid, metric, x, by)
    marks: list[Mark] = []
    series = [None] if by is None else grid.values(by)
    numeric = all(isinstance(v, int | float) for v in grid.values(x))
    hues = solver_colours(map(str, series))
    for n, value in enumerate(series):
        everyone = [r for r in grid.rows if by is None or r.get(by) == value]
        mine = [r for r in everyone if _trouble(r) in (None, "stalled")]
        there = [v for v in grid.values(x) if known([r.get(metric) for r in mine if r.get(x) == v])]
        if not there:
            continue
        found = [known([r.get(metric) for r in mine if r.get(x) == v]) for v in there]
        colour = hues[str(value)] if by in ("solver", "solver.name") else f"@c{n % len(OKABE_ITO)}"
        name = "" if by is None else f"{by} = {_tick(value)}" if isinstance(value, int | float) else str(value)
        at = there if numeric else [_tick(v) for v in there]
        low, high = [min(f) for f in found], [max(f) for f in found]
        middle = [float(np.mean(f)) for f in found]
        marks.append(Line(at, middle, name, colour, DASHES[n // len(OKABE_ITO) % 4], low=low, high=high, dots=True))
        bad = [v for v in grid.values(x) if any(_trouble(r) for r in everyone if r.get(x) == v)]
        if bad:  # in the line's own colour; where there is no mean, at the height of the nearest one
            heights = [middle[min(range(len(there)), key=lambda i: abs(_order(grid, x, there[i], v)))] for v in bad]
            shown = bad if numeric else [_tick(v) for v in bad]
            marks.append(Points(shown, heights, "diverged or stalled", colour, 10, "x", legend=False))
    values = grid.values(x)
    log = bool(numeric and values[0] > 0 and len(values) > 2 and values[-1] / values[0] >= 50)
    axis = Axis(x, log=log) if numeric else Axis(x, categories=tuple(_tick(v) for v in values))
    label = metric.replace("_", " ")
    figure = Figure(f"{label.capitalize()} over {x}", axis, Axis(label), tuple(marks), switches=("y",))
    return Chart.of("lines", figure, "Means over seeds, bands span them; × marks runs that diverged or stalled.")


def _order(grid: Grid, key: str, a: Any, b: Any) -> int:
    """How many values lie between two values of a key."""
    values = grid.values(key)
    return values.index(a) - values.index(b)


def _tick(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
