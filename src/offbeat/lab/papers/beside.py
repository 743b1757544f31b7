"""Ours beside the published numbers: the paper's own table, cell by cell, as a value that others draw and print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offbeat.lab.papers.deciding import in_print, values_of
from offbeat.lab.papers.recipe import Point, Recipe
from offbeat.report.numbers import mean, spread


@dataclass(frozen=True)
class Compared:
    """One cell: what the paper prints, what we had with each seed, and what became of the runs behind it."""

    published: float | None
    ours: Sequence[float]
    bad: int = 0
    """How many runs diverged, stalled or failed."""

    @property
    def mean(self) -> float | None:
        return mean(list(self.ours))

    @property
    def std(self) -> float | None:
        return spread(list(self.ours)) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.published is None else self.mean - self.published


@dataclass(frozen=True)
class Panel:
    """Rows and columns as the paper prints them; a third axis gives a panel for each of its values."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[Compared]]


@dataclass(frozen=True)
class Beside:
    """The whole table, in one variant."""

    row: str
    column: str
    panels: Sequence[Panel]

    @property
    def compared(self) -> list[Compared]:
        return [c for p in self.panels for row in p.cells for c in row]


def beside(recipe: Recipe, results: Sequence[Mapping[str, Any]], variant: str | None = None) -> Beside:
    """The results of one variant, that which is compared with the paper unless another is named."""
    chosen = recipe.main if variant is None else variant
    by_seed = {s: in_print(recipe, v) for s, v in values_of(recipe, results, chosen).items()}
    printed = recipe.printed()
    bad: dict[Point, int] = {}
    for row in results:
        if row["variant"] == chosen and row["status"] != "done":
            cell = tuple(str(row[a]) for a in recipe.shown)
            bad[cell] = bad.get(cell, 0) + 1
    *first, row_axis = recipe.published.rows
    columns = recipe.points(recipe.published.columns)

    def compared(cell: Point) -> Compared:
        found = [v[cell] for _, v in sorted(by_seed.items()) if cell in v]
        return Compared(printed.get(cell), found, bad.get(cell, 0))

    panels = []
    for panel in recipe.points(first):
        cells = [[compared((*panel, row, *column)) for column in columns] for row in recipe.axes[row_axis]]
        title = ", ".join(f"{a} {v}" for a, v in zip(first, panel, strict=True))
        panels.append(Panel(title, list(recipe.axes[row_axis]), [" ".join(c) for c in columns], cells))
    return Beside(row_axis, ", ".join(recipe.published.columns), panels)
