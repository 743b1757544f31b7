"""`offbeat compare`, `demo`, `sweep`: many runs side by side."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.cli.options import (
    BatchOpt,
    BudgetOpt,
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
from offbeat.core.errors import ConfigError, OffbeatError, unknown


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
    settings: SetEachOpt = None,
    seeds: Annotated[int, typer.Option(help="how many seeds each")] = 1,
    target: Annotated[str | None, typer.Option(help="measure the time to: accuracy=0.9")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for the runs and the picture")] = None,
    processes: Annotated[int | None, typer.Option(help="runs side by side (default: all cores)")] = None,
    as_json: JsonOpt = False,
) -> None:
    """Solvers side by side on one task and cluster. Plain SGD gets one worker, without delay and network."""
    if seeds < 1:
        raise ConfigError(f"--seeds must be a number from 1, got {seeds}")
    names = [n.strip() for n in solvers.split(",") if n.strip()]
    if not names:
        raise ConfigError(f"--solvers takes names separated by commas, got {solvers!r}")
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
    run_comparison(values, names, list(range(seeds)), target or until, out, processes, as_json, own)


def run_comparison(
    values: dict[str, Any],
    solvers: Sequence[str],
    seeds: Sequence[int],
    target: str | None,
    out: Path | None,
    processes: int | None,
    as_json: bool,
    own: Mapping[str, Mapping[str, Any]],
) -> None:
    import hashlib

    from offbeat import terminal
    from offbeat.core.budget import Target
    from offbeat.lab.cells import run_cells
    from offbeat.lab.compare import plan_comparison, summarise
    from offbeat.lab.sweep import collect_done, make_folder, rows, write_results
    from offbeat.report import comparison
    from offbeat.report.build import build
    from offbeat.report.read import RunFiles

    goal = None if target is None else Target.parse(target)
    key = hashlib.sha256(json.dumps([values, solvers, seeds, own], sort_keys=True).encode()).hexdigest()[:12]
    folder = out or Path("comparisons") / key
    sweep = plan_comparison(values, solvers, seeds, folder, own)
    if values.get("engine", "sim") != "sim":
        processes = 1  # each run has the machine to itself, or its times would mean nothing
    make_folder(sweep)
    collect_done(sweep)
    with terminal.cells_progress("comparing", sweep.cells, quiet=as_json) as changed:
        finished = run_cells(sweep.cells, side_by_side(processes), on_change=changed)
    write_results(sweep)
    lines = summarise(sweep, goal)
    if as_json:
        print(json.dumps(json_safe(rows(sweep))))
    else:
        terminal.show_comparison(terminal.console(), lines, target)
    if not finished:
        print("interrupted; the same command goes on", file=sys.stderr)
        raise typer.Exit(EXIT["interrupted"])
    good = {s: [c.folder for c in sweep.cells if c.keys["solver"] == s and _drawable(c.outcome)] for s in solvers}
    good = {s: folders for s, folders in good.items() if folders}
    if good:
        workers = max(line.workers for line in lines)
        title = f"{values['task']['name']}: {', '.join(good)} on {workers} workers"
        picture = folder / "comparison.png"
        comparison.draw(good, picture, title=title, target=None if goal is None else (goal.metric, goal.value))
        page = folder / "report.html"
        cells = [c for s in solvers for c in sweep.cells if c.keys["solver"] == s]
        every = [RunFiles.open(c.folder) for c in cells if (c.folder / "run.json").exists()]
        build(every, target=target).save(page)
        shown = f"\npicture  {picture}\npage     {page}\nruns     {folder}"
        print(shown, file=sys.stderr if as_json else sys.stdout)
    for cell in sweep.cells:
        if cell.outcome is not None and cell.outcome["status"] == "failed":
            raise OffbeatError(f"{cell.keys['solver']}, seed {cell.keys['seed']}: {cell.outcome['why']}")


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


def _drawable(outcome: dict[str, Any] | None) -> bool:
    return outcome is not None and outcome["status"] in ("done", "diverged")


def demo(out: Annotated[Path, typer.Option(help="folder for the runs and the picture")] = Path("demo")) -> None:
    """Six solvers side by side on the digits: 8 workers, one of them slow. Less than a minute of computing."""
    print("LeNet-5 on scanned digits, 8 workers of which one is half as fast; all times are virtual.\n")
    values: dict[str, Any] = {
        "task": {"name": "digits"},
        "data": {"batch": 8},
        "cluster": {"workers": 8, "compute": "normal(10ms, 1ms)", "delay": ["10ms@0"], "latency": "0.5ms"},
        "budget": {"seconds": 2.5},
        "evaluate": {"every": "0.5epochs"},
    }
    # Each at the best learning rate of a small grid. One worker alone has fewer samples a second: more often, then.
    own: dict[str, dict[str, Any]] = {
        "plain": {"optimizer.lr": 0.05, "evaluate.every": "0.1epochs"},
        "sync": {"optimizer.lr": 0.2},
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
    from offbeat.lab.sweep import collect_done, make_folder, read_sweep, rows, run_sweep

    changes = dict(parse_setting(text) for text in settings or ())
    if engine is not None:
        changes["engine"] = engine
    found = read_sweep(file, out, changes)
    done = collect_done(found)
    real = any(c.config.get("engine", "sim") != "sim" for c in found.cells)
    count = 1 if real else side_by_side(processes)  # a real run has the machine to itself
    if dry_run:
        from offbeat.lab.estimate import estimate_sweep

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
        print(f"{len(table)} cell{'s' if len(table) > 1 else ''}: {counts}\ntable  {found.folder / 'results.parquet'}")
    for row in table:
        if row["status"] == "failed":
            shown = ", ".join(f"{k}={row[k]}" for k in [*found.keys, "seed"])
            print(f"failed: {shown}: {row.get('why')}", file=sys.stderr)
    if not finished:
        print("interrupted; the same command goes on", file=sys.stderr)
        raise typer.Exit(EXIT["interrupted"])
    if any(row["status"] == "failed" for row in table):
        raise typer.Exit(EXIT["failed"])
