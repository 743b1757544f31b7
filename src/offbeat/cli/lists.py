"""`offbeat list`: what there is."""

import json
from typing import Annotated, Any

import typer

from offbeat.cli.options import JsonOpt, solver_names
from offbeat.cli.output import print_rows
from offbeat.core.errors import ConfigError, unknown

LISTS = ("solvers", "tasks", "models", "engines", "clusters")


def list_(
    what: Annotated[str, typer.Argument(help=", ".join(LISTS), autocompletion=lambda incomplete: list(LISTS))],
    why: Annotated[
        str | None,
        typer.Option(help="of one solver: which engines run it, and why others do not", autocompletion=solver_names),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="of clusters: a page with the source of every number")
    ] = False,
    as_json: JsonOpt = False,
) -> None:
    """What there is: solvers, tasks, models, engines, clusters."""
    from offbeat.lab.catalogue import catalogue, engines_of

    if what not in LISTS:
        raise unknown("list", what, LISTS)
    if why is not None and what != "solvers":
        raise ConfigError(f"--why is for a solver: offbeat list solvers --why {why}")
    if markdown:
        if what != "clusters":
            raise ConfigError(f"--markdown is for clusters, got {what!r}")
        from offbeat.lab.ready_page import markdown as page

        print(page(), end="")
        return
    rows = catalogue(what) if why is None else engines_of(why)
    if as_json:
        print(json.dumps(rows))
    elif what == "models":
        print_rows([_model(row) for row in rows])
        print("\noperations of one sample, a multiply-add being two; CC = operations / parameters")
        print("Table 6: the ratios that wongpanich2020 prints; its counts mix both conventions")
    else:
        print_rows(rows)


def _model(row: dict[str, Any]) -> dict[str, str]:
    """A model as people read it."""
    published = row["cc_published"]
    return {
        "name": row["name"],
        "parameters": f"{row['parameters']:,}",
        "forward": _short(row["forward"]),
        "+ backward": _short(row["training"]),
        "CC forward": f"{row['cc_forward']:.0f}",
        "CC both": f"{row['cc_training']:.0f}",
        "Table 6": "-" if published is None else f"{published:.0f}",
        "input": "x".join(map(str, row["input"])),
        "what": row["what"],
    }


def _short(operations: int) -> str:
    """7.72G of 7,715,946,496."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if operations >= unit:
            return f"{operations / unit:.3g}{letter}"
    return str(operations)
