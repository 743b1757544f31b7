"""Arguments and options that several commands share, and how they become the values of a configuration."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.core.errors import ConfigError
from offbeat.lab.engines import ENGINES


def solver_names(incomplete: str) -> list[str]:
    from offbeat.solvers import SOLVERS

    return [n for n in SOLVERS if n.startswith(incomplete)]


def task_names(incomplete: str) -> list[str]:
    from offbeat.tasks import TASKS

    return [n for n in TASKS if n.startswith(incomplete)]


TaskArg = Annotated[
    str, typer.Argument(help="a task, package.module:factory, or a TOML file", autocompletion=task_names)
]
SolverOpt = Annotated[
    str | None, typer.Option(help="the rule (see: offbeat list solvers)", autocompletion=solver_names)
]
EngineOpt = Annotated[
    str | None,
    typer.Option(
        help=", ".join(f"{name} ({engine.line})" for name, engine in ENGINES.items()),
        autocompletion=lambda incomplete: [n for n in ENGINES if n.startswith(incomplete)],
    ),
]
AddressOpt = Annotated[str | None, typer.Option(help="a running Ray cluster, host:port or auto (with --engine ray)")]
WorkersOpt = Annotated[int | None, typer.Option(help="number of workers")]
BatchOpt = Annotated[int | None, typer.Option(help="samples of one worker's mini-batch")]
GlobalBatchOpt = Annotated[int | None, typer.Option(help="samples of a mini-batch shared by the workers")]
BudgetOpt = Annotated[str | None, typer.Option(help="6epochs, 5000samples, 1000updates or 30s (virtual)")]
UntilOpt = Annotated[str | None, typer.Option(help="stop at a target: accuracy=0.88 or loss=0.1")]
DelayOpt = Annotated[list[str] | None, typer.Option(help="extra delay: 30ms (all), 30ms@0, normal(30ms,5ms)@2-4")]
ComputeOpt = Annotated[
    list[str] | None, typer.Option(help="time of one batch: 10ms (all), 20ms@0, normal(1s,0.2s)@2-4; the last counts")
]
DataOpt = Annotated[str | None, typer.Option(help="what the task is trained on, where it can be chosen: text8, a file")]
TrustOpt = Annotated[
    bool, typer.Option("--trust", help="run the code that the folder names, although it was not made here by you")
]
SetOpt = Annotated[list[str] | None, typer.Option("--set", help="any key: optimizer.lr=0.1")]
SetEachOpt = Annotated[
    list[str] | None, typer.Option("--set", help="any key, for all or for one solver: sync:optimizer.lr=0.2")
]
SeedOpt = Annotated[int | None, typer.Option(help="seed of everything random")]
JsonOpt = Annotated[bool, typer.Option("--json", help="one JSON object on stdout, and nothing else there")]
DryOpt = Annotated[bool, typer.Option("--dry-run", help="say what would run, with memory, disk and time")]


def read_values(
    task: str,
    *,
    solver: str | None,
    workers: int | None,
    batch: int | None,
    global_batch: int | None,
    budget: str | None,
    until: str | None,
    delay: list[str] | None,
    settings: list[str] | None,
    seed: int | None,
    engine: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The values of a configuration: a task's name or a file, then the flags (`more`: further words), then --set."""
    from offbeat.core.budget import Amount, Budget
    from offbeat.lab.config import merge, parse_setting, put, read_toml, say

    values: dict[str, Any] = {}
    if task.endswith(".toml") or (os.sep in task and Path(task).exists()):
        merge(values, read_toml(Path(task)))
    else:
        put(values, "task.name", task)
    words = {
        "solver": solver,
        "workers": workers,
        "batch": batch,
        "global_batch": global_batch,
        "budget": None if budget is None else Budget(Amount.parse(budget, "--budget")),
        "until": until,
        "delay": delay or None,
        "seed": seed,
        "engine": engine,
        **more,
    }
    say(values, words)
    for text in settings or ():
        put(values, *parse_setting(text))
    return values


def side_by_side(given: int | None) -> int:
    if given is not None and given < 1:
        raise ConfigError(f"--processes must be a number from 1, got {given}")
    return given or len(os.sched_getaffinity(0))
