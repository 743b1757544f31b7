"""`offbeat config`: every key of a configuration, or those that a task would run with."""

import json
from typing import Annotated, Any

import typer

from offbeat.cli.options import JsonOpt, SetOpt, SolverOpt, task_names
from offbeat.cli.output import json_safe


def config(
    task: Annotated[
        str | None,
        typer.Argument(help="the values that this task would run with, and not all keys", autocompletion=task_names),
    ] = None,
    solver: SolverOpt = None,
    settings: SetOpt = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="as a page: docs/configuration.md")] = False,
    as_json: JsonOpt = False,
) -> None:
    """Every key with its type, default, meaning and an example; of a task, the values in effect as TOML."""
    from offbeat.core.errors import ConfigError

    if task is not None:
        _effective(task, solver, settings, as_json)
        return
    if solver is not None or settings:
        raise ConfigError("--solver and --set need a task: offbeat config digits --set optimizer.lr=0.1")
    if markdown:
        from offbeat.lab.config.handbook import markdown as page

        print(page(), end="")
        return
    from offbeat.lab.config.meaning import keys

    rows = [k._asdict() for k in keys()]
    if as_json:
        print(json.dumps(json_safe({"keys": rows})))
        return
    section = None
    for row in rows:
        if (now := row["key"].partition(".")[0]) != section:
            print("" if section is None else "\n", end="")
            section = now
        default = "" if row["default"] is None else f", {json.dumps(row['default'])} unless given"
        print(f"{row['key']}: {row['meaning']}\n    {row['type']}{default}; --set {_typed(row)}")
    print("\nFurther keys of task, solver and optimizer are those of what is chosen: offbeat list solvers.")


def _typed(row: dict[str, Any]) -> str:
    text = f"{row['key']}={row['example']}"
    return f'"{text}"' if set(text) & set(" '()[]{}*") else text


def _effective(task: str, solver: str | None, settings: list[str] | None, as_json: bool) -> None:
    from offbeat.cli.options import read_values
    from offbeat.lab.config import make, to_toml

    plain = make(read_values(task, settings, solver=solver)).plain()
    print(json.dumps(json_safe(plain)) if as_json else to_toml(plain), end="\n" if as_json else "")
