"""`offbeat report`: run folders as a page."""

from pathlib import Path
from typing import Annotated

import typer

from offbeat.core.errors import ConfigError

RunsArg = Annotated[list[str], typer.Argument(metavar="RUN...", help="run folders, folders of them, or patterns")]


def report(
    folders: RunsArg,
    out: Annotated[Path, typer.Option("--out", "-o", help="the page, one HTML file")] = Path("report.html"),
    target: Annotated[str | None, typer.Option(help="measure the time to: accuracy=0.9")] = None,
    title: Annotated[str | None, typer.Option(help="the page's title")] = None,
    over: Annotated[
        str | None, typer.Option(help="swept keys: one for lines, two for a heat map, three for many")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="what is drawn over them (default: accuracy or loss)")] = None,
) -> None:
    """A page about one run, or about several compared: interactive, one file, no network."""
    from offbeat.core.budget import Target
    from offbeat.folders.finding import find
    from offbeat.report.figures.grids import of_results
    from offbeat.report.pages.build import build

    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"--out must be an .html file, got {str(out)!r}")
    runs = find(folders, whole=True)
    keys = [k.strip() for k in (over or "").split(",") if k.strip()]
    if len(keys) > 3:
        raise ConfigError(f"--over takes one to three keys, got {over!r}")
    if target is not None:
        Target.parse(target)  # its own error says what is allowed
    if len(runs) == 1 and (keys or metric):
        raise ConfigError("--over and --metric are for several runs, got one")
    results = Path(folders[0]) / "results.parquet"  # a sweep's own table has its keys, and cells that failed
    grid = of_results(results) if len(folders) == 1 and results.exists() else None
    page = build(runs, target=target, title=title, grid=grid, over=keys, metric=metric)
    page.save(out)
    print(f"{out}  {out.stat().st_size / 1e6:.1f} MB, {len(runs)} run{'s' if len(runs) > 1 else ''}")
