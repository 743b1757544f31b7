"""From folders to a page."""

from collections.abc import Sequence

from offbeat.folders.run_files import RunFiles
from offbeat.report.figures.grids import Grid
from offbeat.report.pages import several, single
from offbeat.report.pages.page import Page


def build(
    runs: Sequence[RunFiles],
    *,
    target: str | None = None,
    title: str | None = None,
    grid: Grid | None = None,
    over: Sequence[str] = (),
    metric: str | None = None,
) -> Page:
    """The page of one run, or of several compared."""
    if len(runs) == 1:
        return single.page(runs[0], title=title)
    return several.page(runs, target=target, title=title, grid=grid, over=over, metric=metric)
