"""`offbeat check` and `offbeat cite`: is a solver right, and whose is it."""

import json
from typing import Annotated

import typer

from offbeat.cli.options import JsonOpt, SetOpt, solver_names
from offbeat.core.errors import ConfigError

SolverArg = Annotated[str, typer.Argument(help="a solver, or package.module:MySolver", autocompletion=solver_names)]
_MARKS = {"holds": "ok", "fails": "FAILS", "does not apply": "-", "note": "note"}


def check(
    solver: SolverArg,
    settings: SetOpt = None,
    workers: Annotated[int, typer.Option(help="number of workers of the trials")] = 3,
    as_json: JsonOpt = False,
) -> None:
    """Hold a solver to the contract, and say in words what fails."""
    from offbeat.lab.config import parse_setting
    from offbeat.lab.contract.findings import check as run

    options = dict(_own_key(*parse_setting(text)) for text in settings or ())
    if workers < 1:
        raise ConfigError(f"--workers must be a number from 1, got {workers}")
    found = []
    for finding in run(solver, options, workers=workers):
        found.append(finding)
        if not as_json:
            words = f": {finding.words}" if finding.words else ""
            print(f"{_MARKS[finding.verdict]:5} {finding.check}{words}", flush=True)
    failed = sum(f.verdict == "fails" for f in found)
    if as_json:
        print(json.dumps([{"check": f.check, "verdict": f.verdict, "words": f.words} for f in found]))
    else:
        print(f"{solver}: {failed} of {len(found)} fail" if failed else f"{solver} keeps the contract")
    raise typer.Exit(1 if failed else 0)


def cite(solver: SolverArg) -> None:
    """The papers behind a solver, as BibTeX."""
    from offbeat.lab.catalogue import references

    print(references(solver), end="")


def _own_key(key: str, value: object) -> tuple[str, object]:
    section, _, name = key.partition(".")
    if section != "solver" or not name:
        raise ConfigError(f"offbeat check takes the solver's own keys, such as solver.momentum=0.9, got {key!r}")
    return name, value
