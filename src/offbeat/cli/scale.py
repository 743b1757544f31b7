"""`offbeat scale`: more workers for a run that is running, or fewer."""

import json
from pathlib import Path
from typing import Annotated

import typer

from offbeat.cli.options import JsonOpt


def scale(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
    workers: Annotated[int, typer.Option(help="how many it is to have, up to its cluster.workers")],
    as_json: JsonOpt = False,
) -> None:
    """Another number of workers for a run of real processes that is running, here or on a Ray cluster."""
    from offbeat.lab.runs.another_number import scale as ask

    found = ask(folder, workers)
    print(json.dumps(found) if as_json else found["said"])
