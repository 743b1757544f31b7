"""`offbeat data`: what is there, and how to get it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.cli.options import JsonOpt
from offbeat.cli.output import print_rows


def data_list(as_json: JsonOpt = False) -> None:
    """The datasets, which of them are here, their size and licence."""
    from offbeat.core.units import format_size
    from offbeat.data.datasets import cache_dir, status

    found = status(cache_dir())
    rows: list[dict[str, Any]] = [
        {"name": s.name, "here": "yes" if s.present else "no", "size": s.size, "licence": s.licence, "what": s.about}
        for s in found
    ]
    if as_json:
        print(json.dumps(rows))
        return
    print_rows([{**row, "size": format_size(int(float(f"{row['size']:.3g}"))) if row["size"] else "-"} for row in rows])
    print(f"\ncache: {cache_dir()}")


def data_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="datasets (see: offbeat data list)")],
    local: Annotated[Path | None, typer.Option("--from", help="a folder that has the files")] = None,
) -> None:
    """Fetch datasets, verify them and keep them in the cache."""
    from offbeat.data.datasets import cache_dir, dataset
    from offbeat.data.fetch import fetch

    rows = {name: dataset(name) for name in names}  # a wrong name is told before anything is fetched
    for name, row in rows.items():
        if row.embedded:
            print(f"{name} comes with offbeat: nothing to get")
            continue
        with _download_progress() as progress:
            folder = fetch(name, cache=cache_dir(), local=local, progress=progress)
        print(f"{name}: verified, in {folder}")


@contextmanager
def _download_progress() -> Iterator[Any]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from offbeat import terminal

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=terminal.console(stderr=True), transient=True
    ) as bar:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield update
