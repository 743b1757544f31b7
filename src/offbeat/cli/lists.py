"""`offbeat list`: what there is."""

import json
from typing import Annotated

import typer

from offbeat.cli.options import JsonOpt
from offbeat.cli.output import print_rows
from offbeat.core.errors import unknown

LISTS = ("solvers", "tasks", "models", "recipes")


def list_(
    what: Annotated[str, typer.Argument(help=", ".join(LISTS), autocompletion=lambda incomplete: list(LISTS))],
    as_json: JsonOpt = False,
) -> None:
    """What there is: solvers, tasks, models, recipes."""
    from offbeat.lab.catalogue import catalogue

    if what not in LISTS:
        raise unknown("list", what, LISTS)
    rows = catalogue(what)
    if as_json:
        print(json.dumps(rows))
    elif not rows:
        print(f"no {what} yet")
    else:
        print_rows(rows)
