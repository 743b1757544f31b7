"""`offbeat runs` and `offbeat diff`: keeping order among run folders."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.cli.options import JsonOpt
from offbeat.cli.output import json_safe, print_rows
from offbeat.core.errors import ConfigError
from offbeat.core.legible import legible
from offbeat.core.units import counted

PatternsArg = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN...]", help="folders or patterns (default: runs)")
]
FoldersArg = Annotated[list[str], typer.Argument(metavar="RUN...", help="run folders, folders of them, or patterns")]
WhereOpt = Annotated[
    list[str] | None, typer.Option("--where", help="a condition: solver=asgd, accuracy>0.9, tags=good")
]


def runs(context: typer.Context) -> None:
    """Run folders: list, show, filter, tag, remove. Alone, it lists what is in ./runs."""
    if context.invoked_subcommand is None:
        list_runs()


def list_runs(
    patterns: PatternsArg = None,
    where: WhereOpt = None,
    sort: Annotated[str | None, typer.Option(help="a column; -column for the largest first")] = None,
    as_json: JsonOpt = False,
) -> None:
    """The runs there are, with what they came to."""
    from offbeat.core.errors import unknown
    from offbeat.folders.finding import find
    from offbeat.report.filter import matching
    from offbeat.report.read import tidy

    if not patterns and not Path("runs").exists():
        found = []
    else:
        found = matching(find(patterns or ["runs"]), where or [])
    rows = [tidy(r) for r in found]
    if sort is not None:
        key = sort.lstrip("-")
        if rows and not any(key in row for row in rows):
            raise unknown("column", key, dict.fromkeys(k for row in rows for k in row))
        rows.sort(key=lambda r: (r.get(key) is None, _rank(r.get(key), sort.startswith("-"))))
    if as_json:
        print(json.dumps(json_safe(rows)))
    elif not rows:
        print("no runs")
    else:
        print_rows([_short(row) for row in rows])


def _rank(value: Any, reverse: bool) -> Any:
    if isinstance(value, int | float):
        return (0, -value if reverse else value, "")
    return (1, 0, str(value))


def _short(row: dict[str, Any]) -> dict[str, Any]:
    names = (
        "run",
        "status",
        "task",
        "solver",
        "workers",
        "seed",
        "accuracy",
        "loss",
        "mean_staleness",
        "updates",
        "tags",
    )
    shown = {"mean_staleness": "staleness"}
    return {shown.get(n, n): _cell(row.get(n)) for n in names}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "-" if value in (None, "") else str(value)
    return f"{text[:16]}…" if len(text) == 64 else text  # a checksum


def show_runs(patterns: PatternsArg = None, as_json: JsonOpt = False) -> None:
    """Which configurations share a folder: what differs between them, which seeds each has, what all have in common."""
    from offbeat.folders.finding import find
    from offbeat.report.groups import configurations

    shared, found = configurations(find(patterns or ["runs"]))
    if as_json:
        print(json.dumps(json_safe({"shared": shared, "configurations": [c._asdict() for c in found]})))
        return
    count = sum(len(c.folders) for c in found)
    print(f"{counted(count, 'run')} of {counted(len(found), 'configuration')}")
    for c in found:
        more = f" and {len(c.folders) - 1} more" if len(c.folders) > 1 else ""
        seeds = f"seed{'s' * (len(c.seeds) > 1)} {', '.join(map(str, c.seeds))}"
        print(f"\n{legible(c.name)}: {seeds}, {legible(c.folders[0])}{more}")
        _print_keys(c.differs)
    print("\nthe same in all")
    _print_keys(shared)


def _print_keys(settings: dict[str, Any]) -> None:
    for key, value in settings.items():
        if value not in (None, ""):
            print(f"    {legible(key)} = {legible(value)}")


def tag_runs(
    folders: FoldersArg,
    add: Annotated[list[str] | None, typer.Option(help="a tag to give")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="a tag to take away")] = None,
) -> None:
    """Give runs tags, or take them away."""
    from offbeat.folders.finding import find
    from offbeat.lab.runs.store import tag

    if not add and not drop:
        raise ConfigError("say which tag: --add good, or --drop good")
    for run in find(folders):
        print(f"{run.place}  {', '.join(tag(run.path, add or [], drop or [])) or '-'}")


def remove_runs(
    folders: FoldersArg,
    where: WhereOpt = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete runs: what a run made, and nothing else."""
    from offbeat.folders.finding import find
    from offbeat.lab.runs.store import remove
    from offbeat.report.filter import matching

    found = matching(find(folders), where or [])
    if not found:
        print("no runs")
        return
    if not yes:
        for run in found:
            print(run.place)
        try:
            sure = typer.confirm(f"remove {len(found)} run{'s' if len(found) > 1 else ''}?")
        except typer.Abort:  # nobody there to answer
            sure = False
        if not sure:
            print("nothing was removed; with --yes nobody is asked", file=sys.stderr)
            raise typer.Exit(1)
    for run in found:
        remove(run.path)
    print(f"removed {len(found)} run{'s' if len(found) > 1 else ''}")


def diff(
    a: Annotated[Path, typer.Argument(help="a run folder")],
    b: Annotated[Path, typer.Argument(help="another")],
    as_json: JsonOpt = False,
) -> None:
    """Two runs: what was set differently, the first gradient that differs, and what came out."""
    from dataclasses import asdict

    from offbeat.folders.run_files import RunFiles
    from offbeat.report.diff import diff as compare

    found = compare(RunFiles.open(a), RunFiles.open(b))
    if as_json:
        print(json.dumps(json_safe({**asdict(found), "same": found.same})))
        return
    if found.same:
        print("the same: configuration, every gradient, outcomes" + ("" if found.timed else " (wall times aside)"))
        return
    print_rows([{"configuration": "the same"}]) if not found.config else _print(found.config, "configuration", a, b)
    print()
    if found.row is None:
        print("every gradient is the same" + ("" if found.timed else " (wall times aside)"))
    elif not found.columns:
        print(f"gradient {found.row} is in the trace of one of them only")
    else:
        _print(found.columns, f"gradient {found.row}, the first that differs", a, b)
    if found.outcomes:
        print()
        _print(found.outcomes, "outcome", a, b)


def _print(changes: dict[str, tuple[Any, Any]], title: str, a: Path, b: Path) -> None:
    names = (str(a), str(b)) if str(a) != str(b) else (f"{a} (first)", f"{b} (second)")
    print_rows([{title: k, names[0]: _cell(x), names[1]: _cell(y)} for k, (x, y) in changes.items()])
