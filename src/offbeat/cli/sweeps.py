"""`offbeat sweep`: a grid over any keys."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.cli.options import (
    AddressOpt,
    AgainOpt,
    BandwidthOpt,
    BatchOpt,
    BudgetOpt,
    ClusterOpt,
    ComputeOpt,
    CpusOpt,
    DataOpt,
    DelayOpt,
    DivergenceOpt,
    DryOpt,
    EngineOpt,
    GlobalBatchOpt,
    JsonOpt,
    LatencyOpt,
    OnOpt,
    ProcessesOpt,
    SavesOpt,
    SetOpt,
    SolverOpt,
    UntilOpt,
    WorkersOpt,
    read_grid,
    read_settings,
    read_values,
    task_names,
)
from offbeat.cli.output import EXIT, json_safe, print_dry_run
from offbeat.cli.studies import check_seeds, run_study, say_interrupted, where_of


def sweep(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK|FILE.toml",
            help="a task, package.module:factory, or a run's configuration, with a [sweep] section or --grid",
            autocompletion=task_names,
        ),
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(help="values of a key: optimizer.lr=0.01,0.1; may be repeated, and replaces the file's grid"),
    ] = None,
    solver: SolverOpt = None,
    engine: EngineOpt = None,
    cluster: ClusterOpt = None,
    workers: WorkersOpt = None,
    batch: BatchOpt = None,
    global_batch: GlobalBatchOpt = None,
    budget: BudgetOpt = None,
    until: UntilOpt = None,
    compute: ComputeOpt = None,
    delay: DelayOpt = None,
    latency: LatencyOpt = None,
    bandwidth: BandwidthOpt = None,
    settings: SetOpt = None,
    seeds: Annotated[int | None, typer.Option(help="how many seeds each, whatever the file says")] = None,
    data: DataOpt = None,
    saves_per_epoch: SavesOpt = None,
    on_divergence: DivergenceOpt = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the sweep (default: sweeps/<name of the file, or hash>)")
    ] = None,
    processes: ProcessesOpt = None,
    on: OnOpt = "here",
    address: AddressOpt = None,
    cpus: CpusOpt = None,
    again: AgainOpt = False,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """A grid over any keys, times seeds. Started again it skips what is done and resumes what is not."""
    from offbeat import terminal
    from offbeat.lab.config import keys_of
    from offbeat.lab.studies.sweep import plan_sweep, say_what_is_swept

    where, address = where_of(on, processes, address, cpus)
    words: dict[str, Any] = {
        "solver": solver,
        "workers": workers,
        "batch": batch,
        "global_batch": global_batch,
        "budget": budget,
        "until": until,
        "compute": compute,
        "delay": delay,
        "latency": latency,
        "bandwidth": bandwidth,
        "engine": engine,
        "address": address,
        "data": data,
        "saves_per_epoch": saves_per_epoch,
        "on_divergence": on_divergence,
    }
    given = {word: value for word, value in words.items() if value not in (None, [])}
    values = read_values(task, settings, cluster=cluster, **given)
    if seeds is not None:
        check_seeds(seeds)
    say_what_is_swept(values, read_grid(grid), seeds=seeds)
    made = plan_sweep(values, out, task, fixed={*keys_of(given), *read_settings(settings)})
    if dry_run:
        print_dry_run(made.would_run(where), as_json)
        return
    name = Path(task).stem if task.endswith(".toml") else made.folder.name
    finished = run_study(made, f"sweep {name}", where, again=again, quiet=as_json)
    if as_json:
        print(json.dumps(json_safe(made.rows())))
    else:
        print(made)
        terminal.show_best(terminal.console(), *made.ranking())
        print(f"table  {made.folder / 'results.parquet'}")
        print(f"page   offbeat report {shlex.quote(str(made.folder))} -o {shlex.quote(f'{name}.html')}")
    for failure in made.failures:
        print(f"failed: {failure}", file=sys.stderr)
    say_interrupted(finished)
    if made.failures:
        raise typer.Exit(EXIT["failed"])
