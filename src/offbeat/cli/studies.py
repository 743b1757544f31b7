"""`offbeat compare`, `demo`, `sweep`: many runs side by side."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.cli.comparing import run_comparison
from offbeat.cli.options import (
    BatchOpt,
    BudgetOpt,
    ComputeOpt,
    DelayOpt,
    DryOpt,
    EngineOpt,
    GlobalBatchOpt,
    JsonOpt,
    SetEachOpt,
    SetOpt,
    TaskArg,
    UntilOpt,
    WorkersOpt,
    read_values,
    side_by_side,
)
from offbeat.cli.output import EXIT, json_safe, print_estimate
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.interruption import exit_code
from offbeat.lab.engines import entry


def compare(
    task: TaskArg,
    solvers: Annotated[str, typer.Option(help="names, separated by commas")] = "plain,sync,asgd",
    engine: EngineOpt = None,
    workers: WorkersOpt = None,
    batch: BatchOpt = None,
    global_batch: GlobalBatchOpt = None,
    budget: BudgetOpt = None,
    until: UntilOpt = None,
    delay: DelayOpt = None,
    compute: ComputeOpt = None,
    latency: Annotated[str | None, typer.Option(help="of one message, each way")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="of a worker's link: 10Gbps")] = None,
    settings: SetEachOpt = None,
    seeds: Annotated[int, typer.Option(help="how many seeds each")] = 1,
    target: Annotated[str | None, typer.Option(help="measure the time to: accuracy=0.9")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for the runs and the picture")] = None,
    processes: Annotated[int | None, typer.Option(help="runs side by side (default: all cores)")] = None,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Solvers side by side on one task and cluster. Plain SGD gets one worker, without delay and network."""
    from offbeat.lab.config import parse_setting, put
    from offbeat.lab.studies.sweep import check_count

    if seeds < 1:
        raise ConfigError(f"--seeds must be a number from 1, got {seeds}")
    names = [n.strip() for n in solvers.split(",") if n.strip()]
    if not names:
        raise ConfigError(f"--solvers takes names separated by commas, got {solvers!r}")
    check_count(len(names) * seeds)
    if len(set(names)) < len(names):
        raise ConfigError(f"--solvers must name each solver once, got {solvers!r}")
    shared, own = _split_settings(settings or [], names)
    values = read_values(
        task,
        solver=None,
        workers=workers,
        batch=batch,
        global_batch=global_batch,
        budget=budget,
        until=until,
        delay=delay,
        settings=shared,
        seed=None,
        engine=engine,
    )
    for key, value in {"compute": compute, "latency": latency, "bandwidth": bandwidth}.items():
        if value:
            put(values, f"cluster.{key}", value)
    for key, value in map(parse_setting, shared):  # --set has the last word
        put(values, key, value)
    run_comparison(values, names, list(range(seeds)), target or until, out, processes, as_json, own, dry_run=dry_run)


def _split_settings(settings: Sequence[str], names: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Settings for all, and those for one solver: `sync:optimizer.lr=0.2`."""
    from offbeat.lab.config import parse_setting

    shared: list[str] = []
    own: dict[str, dict[str, Any]] = {}
    for text in settings:
        name, colon, rest = text.partition("=")[0].rpartition(":")
        if not colon:
            shared.append(text)
            continue
        rest = text[len(name) + 1 :]
        if name not in names:
            raise unknown("solver of this comparison", name, names)
        key, value = parse_setting(rest)
        own.setdefault(name, {})[key] = value
    return shared, own


def demo(out: Annotated[Path, typer.Option(help="folder for the runs and the picture")] = Path("demo")) -> None:
    """Six solvers side by side on the digits: 8 workers, one of them slow. Less than a minute on 2 cores."""
    print("LeNet-5 on scanned digits, 8 workers of which one is half as fast; all times are virtual.\n")
    values: dict[str, Any] = {
        "task": {"name": "digits"},
        "data": {"batch": 8},
        "cluster": {"workers": 8, "compute": "normal(10ms, 1ms)", "delay": ["10ms@0"], "latency": "0.5ms"},
        "budget": {"seconds": 3.0},
        "evaluate": {"every": "384samples"},
    }
    # Each at the best learning rate of a small grid, found with other seeds, and evaluated about every 70 virtual ms,
    # in which one worker alone and those that wait for each other process fewer samples.
    own: dict[str, dict[str, Any]] = {
        "plain": {"optimizer.lr": 0.05, "evaluate.every": "56samples"},
        "sync": {"optimizer.lr": 0.15, "evaluate.every": "192samples"},
        "backup": {"optimizer.lr": 0.2},
        "easgd": {"optimizer.lr": 0.1, "solver.period": 2, "solver.order": "arrival"},
        "dc-asgd": {"optimizer.lr": 0.02, "solver.lam": 0.1},
        "asgd": {"optimizer.lr": 0.02},
    }
    run_comparison(values, list(own), [0, 1, 2], "accuracy=0.9", out, None, False, own)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="a run's configuration with a [sweep] section")],
    out: Annotated[Path | None, typer.Option(help="folder of the sweep (default: sweeps/<name of the file>)")] = None,
    settings: SetOpt = None,
    engine: EngineOpt = None,
    processes: Annotated[int | None, typer.Option(help="cells side by side (default: all cores)")] = None,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """A grid over any keys, times seeds. Started again it skips what is done and resumes what is not."""
    from offbeat import terminal
    from offbeat.lab.config import parse_setting
    from offbeat.lab.studies.sweep import best_rows, collect_done, make_folder, read_sweep, rows, run_sweep

    changes = dict(parse_setting(text) for text in settings or ())
    if engine is not None:
        changes["engine"] = engine
    found = read_sweep(file, out, changes)
    done = collect_done(found)
    real = any(entry(c.config["engine"]).real for c in found.cells)
    count = 1 if real else side_by_side(processes)  # a real run has the machine to itself
    if dry_run:
        from offbeat.lab.studies.estimate import estimate_sweep

        print_estimate(estimate_sweep(found, done, count), as_json)
        return
    make_folder(found)
    with terminal.cells_progress(f"sweep {file.stem}", found.cells, quiet=as_json) as changed:
        finished = run_sweep(found, count, on_change=changed)
    table = rows(found)
    if as_json:
        print(json.dumps(json_safe(table)))
    else:
        statuses = [row["status"] for row in table]
        counts = ", ".join(f"{statuses.count(s)} {s}" for s in dict.fromkeys(statuses))
        print(f"{len(table)} cell{'s' if len(table) > 1 else ''}: {counts}")
        terminal.show_best(terminal.console(), *best_rows(found))
        print(f"table  {found.folder / 'results.parquet'}")
        print(f"page   offbeat report {shlex.quote(str(found.folder))} -o {shlex.quote(f'{file.stem}.html')}")
    for row in table:
        if row["status"] == "failed":
            shown = ", ".join(f"{k}={row[k]}" for k in [*found.keys, "seed"])
            print(f"failed: {shown}: {row.get('why')}", file=sys.stderr)
    if not finished:
        print("interrupted; the same command goes on", file=sys.stderr)
        raise typer.Exit(exit_code())
    if any(row["status"] == "failed" for row in table):
        raise typer.Exit(EXIT["failed"])
