"""The command line. Everything heavy is imported inside the command that needs it: `offbeat --help` answers at once."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from offbeat.core.errors import ConfigError, OffbeatError, unknown

EXIT = {"done": 0, "failed": 1, "diverged": 3, "interrupted": 130}

app = typer.Typer(
    help="Training out of sync, on purpose.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Datasets: what is there, and how to get them.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def _solver_names(incomplete: str) -> list[str]:
    from offbeat.solvers import SOLVERS

    return [n for n in SOLVERS if n.startswith(incomplete)]


def _task_names(incomplete: str) -> list[str]:
    from offbeat.tasks import TASKS

    return [n for n in TASKS if n.startswith(incomplete)]


TaskArg = Annotated[
    str, typer.Argument(help="a task, package.module:factory, or a TOML file", autocompletion=_task_names)
]
SolverOpt = Annotated[
    str | None, typer.Option(help="the rule (see: offbeat list solvers)", autocompletion=_solver_names)
]
WorkersOpt = Annotated[int | None, typer.Option(help="number of workers")]
BatchOpt = Annotated[int | None, typer.Option(help="samples of one worker's mini-batch")]
GlobalBatchOpt = Annotated[int | None, typer.Option(help="samples of a mini-batch shared by the workers")]
BudgetOpt = Annotated[str | None, typer.Option(help="6epochs, 5000samples, 1000updates or 30s (virtual)")]
UntilOpt = Annotated[str | None, typer.Option(help="stop at a target: accuracy=0.88 or loss=0.1")]
DelayOpt = Annotated[list[str] | None, typer.Option(help="extra delay: 30ms (all), 30ms@0, normal(30ms,5ms)@2-4")]
SetOpt = Annotated[list[str] | None, typer.Option("--set", help="any key: optimizer.lr=0.1")]
SetEachOpt = Annotated[
    list[str] | None, typer.Option("--set", help="any key, for all or for one solver: sync:optimizer.lr=0.2")
]
SeedOpt = Annotated[int | None, typer.Option(help="seed of everything random")]
JsonOpt = Annotated[bool, typer.Option("--json", help="one JSON object on stdout, and nothing else there")]
DryOpt = Annotated[bool, typer.Option("--dry-run", help="say what would run, with memory, disk and time")]


def _values(
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
) -> dict[str, Any]:
    """The values of a configuration: a task's name or a file, then the flags, then --set."""
    from offbeat.core.budget import Amount
    from offbeat.lab.config import parse_setting, put, read_toml

    values: dict[str, Any] = {}
    if task.endswith(".toml") or (os.sep in task and Path(task).exists()):
        for key, value in read_toml(Path(task)).items():
            if isinstance(value, dict):
                for field, inner in value.items():
                    put(values, f"{key}.{field}", inner)
            else:
                put(values, f"{key}.name" if key in ("task", "solver", "optimizer") else key, value)
    else:
        put(values, "task.name", task)
    flags: dict[str, Any] = {
        "solver.name": solver,
        "cluster.workers": workers,
        "data.batch": batch,
        "data.global_batch": global_batch,
        "budget.until": until,
        "cluster.delay": delay or None,
        "seed": seed,
    }
    if budget is not None:
        amount = Amount.parse(budget, "--budget")
        flags[f"budget.{amount.unit}"] = amount.count if amount.unit in ("epochs", "seconds") else int(amount.count)
    for key, value in flags.items():
        if value is not None:
            put(values, key, value)
    for text in settings or ():
        put(values, *parse_setting(text))
    return values


@app.command()
def run(
    task: TaskArg,
    solver: SolverOpt = None,
    workers: WorkersOpt = None,
    batch: BatchOpt = None,
    global_batch: GlobalBatchOpt = None,
    budget: BudgetOpt = None,
    until: UntilOpt = None,
    delay: DelayOpt = None,
    settings: SetOpt = None,
    seed: SeedOpt = None,
    saves_per_epoch: Annotated[float | None, typer.Option(help="weight snapshots along the way")] = None,
    on_divergence: Annotated[str | None, typer.Option(help="stop or continue")] = None,
    out: Annotated[Path | None, typer.Option(help="this run's own folder (default: runs/<hash>)")] = None,
    pool: Annotated[int | None, typer.Option(help="threads that compute gradients (default: all cores)")] = None,
    checkpoint_every: Annotated[str, typer.Option(help="wall time between checkpoints")] = "30s",
    again: Annotated[bool, typer.Option("--again", help="run anew what is already there")] = False,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Train once; the run leaves a folder. A finished run is shown again, an unfinished one goes on."""
    from offbeat.core.units import parse_duration
    from offbeat.lab.config import make, put

    if pool is not None and pool < 0:
        raise ConfigError(f"--pool must be a number of threads from 0, got {pool}")
    seconds = parse_duration(checkpoint_every, "--checkpoint-every")
    values = _values(
        task,
        solver=solver,
        workers=workers,
        batch=batch,
        global_batch=global_batch,
        budget=budget,
        until=until,
        delay=delay,
        settings=settings,
        seed=seed,
    )
    if saves_per_epoch is not None:
        put(values, "record.saves_per_epoch", saves_per_epoch)
    if on_divergence is not None:
        put(values, "on_divergence", on_divergence)
    config = make(values)
    if dry_run:
        from offbeat.lab.estimate import estimate

        _print_estimate(estimate(config, pool), as_json)
        return
    _execute(config, out, pool=pool, again=again, checkpoint_seconds=seconds, as_json=as_json)


def _execute(
    config: Any, out: Path | None, *, pool: int | None, again: bool, checkpoint_seconds: float, as_json: bool
) -> NoReturn:
    from offbeat import terminal
    from offbeat.lab.plan import build
    from offbeat.lab.run import execute

    plan = build(config)
    folder = out if out is not None else Path("runs") / str(plan.key)
    label = f"{plan.task.name} / {plan.solver_name}"
    with terminal.run_progress(label, quiet=as_json and not sys.stderr.isatty()) as progress:
        done = execute(plan, folder, pool=pool, again=again, checkpoint_seconds=checkpoint_seconds, progress=progress)
    if as_json:
        print(json.dumps(_json_safe(done.summary)))
    else:
        terminal.show_summary(terminal.console(), done.summary)
    if done.status == "interrupted":
        print(f"interrupted; go on with: offbeat resume {folder}", file=sys.stderr)
    elif done.status in ("failed", "diverged"):
        print(f"{done.status}: {done.why}", file=sys.stderr)
    raise typer.Exit(EXIT[done.status])


def _json_safe(value: Any) -> Any:
    """JSON knows no NaN: what is not a number is null."""
    if isinstance(value, dict):
        return {k: _json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json_safe(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _print_estimate(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(_json_safe(found)))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):20} {value}")


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
    pool: Annotated[int | None, typer.Option(help="threads that compute gradients")] = None,
    checkpoint_every: Annotated[str, typer.Option(help="wall time between checkpoints")] = "30s",
    as_json: JsonOpt = False,
) -> None:
    """Go on with an interrupted or killed run: it ends with the same bits as one never interrupted."""
    from offbeat.core.units import parse_duration
    from offbeat.lab.config import make
    from offbeat.lab.folder import Folder

    info = Folder(folder).read()
    if info["config"].get("from") == "python":
        raise ConfigError(f"{folder} was made by a Python script: run the script again, it goes on by itself")
    seconds = parse_duration(checkpoint_every, "--checkpoint-every")
    _execute(make(info["config"]), folder, pool=pool, again=False, checkpoint_seconds=seconds, as_json=as_json)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
    toml: Annotated[bool, typer.Option("--toml", help="its whole configuration, which `run` takes back")] = False,
    as_json: JsonOpt = False,
) -> None:
    """What a run was and how it went."""
    from offbeat import terminal
    from offbeat.lab.config import to_toml
    from offbeat.report.read import RunFiles

    info = RunFiles.open(folder).info
    if toml:
        print(to_toml(info["config"]), end="")
    elif as_json:
        print(json.dumps(_json_safe({**info.get("summary", {}), "status": info["status"], "run": str(folder)})))
    elif "summary" in info:
        terminal.show_summary(terminal.console(), {**info["summary"], "run": str(folder)})
    else:
        print(f"{info['status']}: not finished yet; go on with: offbeat resume {folder}")


@app.command()
def compare(
    task: TaskArg,
    solvers: Annotated[str, typer.Option(help="names, separated by commas")] = "plain,sync,asgd",
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
    shared, own = _split_settings(settings or [], names)
    values = _values(
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
    )
    _compare(values, names, list(range(seeds)), target or until, out, processes, as_json, own)


def _compare(
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
    from offbeat.lab.sweep import collect_done, rows, write_results
    from offbeat.report import comparison

    goal = None if target is None else Target.parse(target)
    key = hashlib.sha256(json.dumps([values, solvers, seeds, own], sort_keys=True).encode()).hexdigest()[:12]
    folder = out or Path("comparisons") / key
    sweep = plan_comparison(values, solvers, seeds, folder, own)
    collect_done(sweep)
    with terminal.cells_progress("comparing", sweep.cells, quiet=as_json) as changed:
        finished = run_cells(sweep.cells, _processes(processes), on_change=changed)
    write_results(sweep)
    lines = summarise(sweep, goal)
    if as_json:
        print(json.dumps(_json_safe(rows(sweep))))
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
        print(f"\npicture  {picture}\nruns     {folder}", file=sys.stderr if as_json else sys.stdout)
    for cell in sweep.cells:
        if cell.outcome is not None and cell.outcome["status"] == "failed":
            raise OffbeatError(f"{cell.keys['solver']}, seed {cell.keys['seed']}: {cell.outcome['why']}")


def _split_settings(settings: Sequence[str], names: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Settings for all, and those for one solver: `sync:optimizer.lr=0.2`."""
    from offbeat.lab.config import parse_setting

    shared: list[str] = []
    own: dict[str, dict[str, Any]] = {}
    for text in settings:
        name, colon, rest = text.partition(":")
        if not colon or "=" in name:
            shared.append(text)
            continue
        if name not in names:
            raise unknown("solver of this comparison", name, names)
        key, value = parse_setting(rest)
        own.setdefault(name, {})[key] = value
    return shared, own


def _drawable(outcome: dict[str, Any] | None) -> bool:
    return outcome is not None and outcome["status"] in ("done", "diverged")


def _processes(given: int | None) -> int:
    if given is not None and given < 1:
        raise ConfigError(f"--processes must be a number from 1, got {given}")
    return given or len(os.sched_getaffinity(0))


@app.command()
def demo(out: Annotated[Path, typer.Option(help="folder for the runs and the picture")] = Path("demo")) -> None:
    """Plain, synchronous and asynchronous SGD on the digits: 8 workers, one of them slow. About a minute."""
    print("LeNet-5 on scanned digits, 8 workers of which one is half as fast; all times are virtual.\n")
    values: dict[str, Any] = {
        "task": {"name": "digits"},
        "cluster": {"workers": 8, "compute": "normal(10ms, 1ms)", "delay": ["10ms@0"], "latency": "0.5ms"},
        "budget": {"seconds": 2.5},
    }
    # Each at a learning rate that suits it: the best of a half-decade grid.
    own = {"plain": {"optimizer.lr": 0.1}, "sync": {"optimizer.lr": 0.2}, "asgd": {"optimizer.lr": 0.03}}
    _compare(values, ["plain", "sync", "asgd"], [0, 1, 2], "accuracy=0.9", out, None, False, own)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="a run's configuration with a [sweep] section")],
    out: Annotated[Path | None, typer.Option(help="folder of the sweep (default: sweeps/<name of the file>)")] = None,
    settings: SetOpt = None,
    processes: Annotated[int | None, typer.Option(help="cells side by side (default: all cores)")] = None,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """A grid over any keys, times seeds. Started again it skips what is done and resumes what is not."""
    from offbeat import terminal
    from offbeat.lab.config import parse_setting
    from offbeat.lab.sweep import collect_done, read_sweep, rows, run_sweep

    found = read_sweep(file, out, dict(parse_setting(text) for text in settings or ()))
    done = collect_done(found)
    count = _processes(processes)
    if dry_run:
        from offbeat.lab.estimate import estimate_sweep

        _print_estimate(estimate_sweep(found, done, count), as_json)
        return
    with terminal.cells_progress(f"sweep {file.stem}", found.cells, quiet=as_json) as changed:
        finished = run_sweep(found, count, on_change=changed)
    table = rows(found)
    if as_json:
        print(json.dumps(_json_safe(table)))
    else:
        statuses = [row["status"] for row in table]
        counts = ", ".join(f"{statuses.count(s)} {s}" for s in dict.fromkeys(statuses))
        print(f"{len(table)} cells: {counts}\ntable  {found.folder / 'results.parquet'}")
    for row in table:
        if row["status"] == "failed":
            shown = ", ".join(f"{k}={row[k]}" for k in [*found.keys, "seed"])
            print(f"failed: {shown}: {row.get('why')}", file=sys.stderr)
    if not finished:
        print("interrupted; the same command goes on", file=sys.stderr)
        raise typer.Exit(EXIT["interrupted"])
    if any(row["status"] == "failed" for row in table):
        raise typer.Exit(EXIT["failed"])


LISTS = ("solvers", "tasks", "models", "recipes")


@app.command("list")
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
        _print_rows(rows)


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    from offbeat import terminal

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(v) for v in row.values()))
    terminal.console().print(table)


@data_app.command("list")
def data_list(as_json: JsonOpt = False) -> None:
    """The datasets, which of them are here, their size and licence."""
    from offbeat.core.units import format_size
    from offbeat.tasks.datasets import cache_dir, status

    found = status(cache_dir())
    rows: list[dict[str, Any]] = [
        {"name": s.name, "here": "yes" if s.present else "no", "size": s.size, "licence": s.licence, "what": s.about}
        for s in found
    ]
    if as_json:
        print(json.dumps(rows))
        return
    _print_rows([{**row, "size": format_size(row["size"]) if row["size"] else "-"} for row in rows])
    print(f"\ncache: {cache_dir()}")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="a dataset (see: offbeat data list)")],
    local: Annotated[Path | None, typer.Option("--from", help="a folder that has the files")] = None,
) -> None:
    """Fetch a dataset, verify it and keep it in the cache."""
    from offbeat.tasks.datasets import cache_dir, dataset
    from offbeat.tasks.fetch import fetch

    if dataset(name).embedded:
        print(f"{name} comes with offbeat: nothing to get")
        return
    with _download_progress() as progress:
        folder = fetch(name, cache=cache_dir(), local=local, progress=progress)
    print(f"{name}: verified, in {folder}")


@contextmanager
def _download_progress() -> Iterator[Any]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from offbeat import terminal

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=terminal.console(stderr=True), transient=True
    ) as bar:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield update


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def main() -> NoReturn:
    """Errors in one line on stderr, exit code 2 for bad input, no tracebacks for what people do wrong."""
    try:
        code = app(standalone_mode=False)
    except OffbeatError as e:
        print(f"offbeat: {_one_line(e)}", file=sys.stderr)
        code = e.exit_code
    except KeyboardInterrupt:
        print("offbeat: interrupted", file=sys.stderr)
        code = EXIT["interrupted"]
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as e:
        if hasattr(e, "format_message"):  # typer's own complaints about arguments
            print(f"offbeat: {_one_line(e.format_message())}", file=sys.stderr)
            code = 2
        elif type(e).__name__ in ("Abort", "Exit"):
            code = getattr(e, "exit_code", 1)
        else:
            raise
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
