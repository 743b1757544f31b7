"""From runs to a page."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError
from offbeat.folders.finding import find
from offbeat.folders.parquet import read_results
from offbeat.folders.run_files import RunFiles
from offbeat.report.figures.grids import Grid, of_results
from offbeat.report.pages import several, single
from offbeat.report.pages.page import Page

RESULTS = "results.parquet"
"""The table of a sweep or comparison, beside its runs."""


@runtime_checkable
class HasFiles(Protocol):
    """A run in Python."""

    def files(self) -> RunFiles:
        """What its folder says of it."""


@runtime_checkable
class HasFolder(Protocol):
    """Many runs in Python: a sweep, a comparison."""

    @property
    def folder(self) -> Path:
        """Where they are."""


Reported = str | Path | RunFiles | HasFiles | HasFolder


def report(
    runs: Reported | Iterable[Reported],
    path: str | Path | None = None,
    *,
    target: str | None = None,
    title: str | None = None,
    over: str | Sequence[str] = (),
    metric: str | None = None,
) -> Page:
    """A page about one run, or about several compared: interactive, one file, no network.

    Args:
        runs: runs, sweeps, comparisons, folders or patterns (`"runs/**"`): one, or a list.
        path: the HTML file that it is written to; nowhere unless given. In a notebook the page shows itself.
        target: measure the time to `"accuracy=0.9"`.
        title: the page's title.
        over: swept keys: one for lines, two for a heat map, three for many.
        metric: what is drawn over them; accuracy or loss unless given.
    """
    if path is not None and Path(path).suffix not in (".html", ".htm"):
        raise ConfigError(f"a page must be an .html file, got {str(path)!r}")
    given = [runs] if isinstance(runs, str | Path | RunFiles | HasFiles | HasFolder) else list(runs)
    if not given:
        raise ConfigError("a report needs a run")
    found = [files for one in given for files in _files(one)]
    keys = [k.strip() for k in (over.split(",") if isinstance(over, str) else over) if k.strip()]
    if len(keys) > 3:
        raise ConfigError(f"over takes one to three keys, got {', '.join(keys)}")
    if target is not None:
        Target.parse(target)  # its own error says what is allowed
    if len(found) == 1 and (keys or metric):
        raise ConfigError("over and metric are for several runs, got one")
    page = build(found, target=target, title=title, grid=_grid(given), over=keys, metric=metric)
    if path is not None:
        page.save(path)
    return page


def _files(given: Any) -> list[RunFiles]:
    if isinstance(given, RunFiles | HasFiles):
        return [given if isinstance(given, RunFiles) else given.files()]
    place = given.folder if isinstance(given, HasFolder) else given
    return _in_order(place, find([place], whole=True))


def _in_order(place: Any, found: list[RunFiles]) -> list[RunFiles]:
    """A comparison and a sweep have an order of their own, that of their table; what is not in it comes last."""
    if not _has_results(place):
        return found
    rows = read_results(Path(place), RESULTS).to_pylist()
    rank = {Path(str(row.get("folder"))).name: i for i, row in enumerate(rows)}
    return sorted(found, key=lambda run: rank.get(run.path.name, len(rank)))


def _has_results(place: Any) -> bool:
    return isinstance(place, str | Path) and (Path(place) / RESULTS).exists()


def _grid(given: Sequence[Any]) -> Grid | None:
    """A sweep's own table has its keys, and cells that failed."""
    (first, *others) = given
    place = getattr(first, "folder", first)
    return None if others or not _has_results(place) else of_results(Path(place) / RESULTS)


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
