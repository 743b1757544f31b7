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
) -> None:
    """A page about one run, or about several compared: interactive, one file, no network."""
    from offbeat.report.build import build
    from offbeat.report.read import find

    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"--out must be an .html file, got {str(out)!r}")
    runs = find(folders)
    page = build(runs, target=target, title=title)
    page.save(out)
    print(f"{out}  {out.stat().st_size / 1e6:.1f} MB, {len(runs)} run{'s' if len(runs) > 1 else ''}")
