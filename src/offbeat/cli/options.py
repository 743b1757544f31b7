"""Arguments and options that several commands share, and how they become the values of a configuration."""

from typing import Annotated, Any

import typer

from offbeat.lab.engines import ENGINES


def solver_names(incomplete: str) -> list[str]:
    from offbeat.solvers import SOLVERS

    return [n for n in SOLVERS if n.startswith(incomplete)]


def task_names(incomplete: str) -> list[str]:
    from offbeat.tasks import TASKS

    return [n for n in TASKS if n.startswith(incomplete)]


def cluster_names(incomplete: str) -> list[str]:
    from offbeat.lab.clusters import ready_clusters

    return [n for n in ready_clusters() if n.startswith(incomplete)]


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
AddressOpt = Annotated[str | None, typer.Option(help="a running Ray cluster, host:port or auto")]
WorkersOpt = Annotated[int | None, typer.Option(help="number of workers")]
BatchOpt = Annotated[int | None, typer.Option(help="samples of one worker's mini-batch")]
GlobalBatchOpt = Annotated[int | None, typer.Option(help="samples of a mini-batch shared by the workers")]
BudgetOpt = Annotated[str | None, typer.Option(help="6epochs, 5000samples, 1000updates or 30s (virtual)")]
UntilOpt = Annotated[str | None, typer.Option(help="stop at a target: accuracy=0.88 or loss=0.1")]
DelayOpt = Annotated[
    list[str] | None, typer.Option(help="extra delay: 30ms (all), 30ms@0, normal(30ms,5ms)@2-4; may be repeated")
]
ComputeOpt = Annotated[
    list[str] | None, typer.Option(help="time of one batch: 10ms (all), 20ms@0, normal(1s,0.2s)@2-4; may be repeated")
]
LatencyOpt = Annotated[str | None, typer.Option(help="of one message, each way")]
BandwidthOpt = Annotated[str | None, typer.Option(help="of a worker's link: 10Gbps")]
ClusterOpt = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|NAME",
        help="a file with a [cluster] section, such as calibrate writes, or a name (offbeat list clusters)",
        autocompletion=cluster_names,
    ),
]
DataOpt = Annotated[str | None, typer.Option(help="what the task is trained on, where it can be chosen: text8, a file")]
SavesOpt = Annotated[float | None, typer.Option(help="weight snapshots along the way")]
DivergenceOpt = Annotated[str | None, typer.Option(help="what a run that diverges does: stop or continue")]
TrustOpt = Annotated[
    bool, typer.Option("--trust", help="run the code that the folder names, although it was not made here by you")
]
SetOpt = Annotated[list[str] | None, typer.Option("--set", help="any key: optimizer.lr=0.1")]
SetEachOpt = Annotated[
    list[str] | None, typer.Option("--set", help="any key, for all or for one solver: sync:optimizer.lr=0.2")
]
SeedOpt = Annotated[int | None, typer.Option(help="seed of everything random")]
JsonOpt = Annotated[bool, typer.Option("--json", help="one JSON object on stdout, and nothing else there")]
AgainOpt = Annotated[bool, typer.Option("--again", help="run anew what is already there")]
ProcessesOpt = Annotated[int | None, typer.Option(help="runs side by side (default: all cores)")]
OnOpt = Annotated[
    str, typer.Option("--on", help="where runs are computed: here, or ray (simulated runs, spread over a Ray cluster)")
]
CpusOpt = Annotated[float | None, typer.Option(help="of the Ray cluster, for each run (with --on ray; default: 1)")]
DryOpt = Annotated[bool, typer.Option("--dry-run", help="say what would run, with memory, disk and time")]


def read_values(
    task: str,
    settings: list[str] | None = None,
    *,
    cluster: str | None = None,
    budget: str | None = None,
    **words: Any,
) -> dict[str, Any]:
    """The values of a configuration: a task's name or a file, then the cluster, the flags, and last --set."""
    from offbeat.core.budget import Amount, Budget
    from offbeat.lab.arguments import said

    given = {name: value for name, value in words.items() if value not in (None, [])}
    if budget is not None:
        given["budget"] = Budget(Amount.parse(budget, "--budget"))
    return said(task, cluster, given, read_settings(settings))[0]


def read_grid(grid: list[str] | None) -> dict[str, list[Any]] | None:
    """Lists of values by key; None where there is no --grid."""
    from offbeat.lab.config.grid import parse_grid

    return parse_grid(grid) if grid else None


def read_settings(settings: list[str] | None) -> dict[str, Any]:
    from offbeat.lab.config import parse_setting

    return dict(parse_setting(text) for text in settings or ())
