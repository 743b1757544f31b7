"""`offbeat report`: run folders as a page."""

from pathlib import Path
from typing import Annotated

import typer

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
    from offbeat.folders.finding import find
    from offbeat.report.pages.build import report as build

    build(list(folders), out, target=target, title=title, over=over or (), metric=metric)
    count = len(find(folders, whole=True))
    print(f"{out}  {out.stat().st_size / 1e6:.1f} MB, {count} run{'s' if count > 1 else ''}")
