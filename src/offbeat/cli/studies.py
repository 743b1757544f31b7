"""`offbeat compare` and `demo`: many runs side by side; and what `sweep` shares with them."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    SetEachOpt,
    TaskArg,
    UntilOpt,
    WorkersOpt,
    read_settings,
    read_values,
)
from offbeat.cli.output import json_safe, print_dry_run
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.core.interruption import exit_code

if TYPE_CHECKING:
    from offbeat.lab.studies.comparing import Comparison
    from offbeat.lab.studies.places import Where
    from offbeat.lab.studies.study import Study


def compare(
    task: TaskArg,
    solvers: Annotated[str, typer.Option(help="names, separated by commas")] = "plain,sync,asgd",
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
    settings: SetEachOpt = None,
    seeds: Annotated[int, typer.Option(help="how many seeds each")] = 1,
    data: DataOpt = None,
    saves_per_epoch: SavesOpt = None,
    on_divergence: DivergenceOpt = None,
    target: Annotated[str | None, typer.Option(help="measure the time to: accuracy=0.9")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for the runs and the picture")] = None,
    processes: ProcessesOpt = None,
    on: OnOpt = "here",
    address: AddressOpt = None,
    cpus: CpusOpt = None,
    again: AgainOpt = False,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Solvers side by side on one task and cluster. Plain SGD gets one worker, without delay and network."""
    from offbeat.lab.studies.comparing import plan

    where, address = where_of(on, processes, address, cpus)
    values = read_values(
        task,
        cluster=cluster,
        workers=workers,
        batch=batch,
        global_batch=global_batch,
        budget=budget,
        until=until,
        compute=compute,
        delay=delay,
        latency=latency,
        bandwidth=bandwidth,
        engine=engine,
        address=address,
        data=data,
        saves_per_epoch=saves_per_epoch,
        on_divergence=on_divergence,
    )
    check_seeds(seeds)
    made = plan(values, solvers, seeds, target or until, out, read_settings(settings))
    if dry_run:
        print_dry_run(made.would_run(where), as_json)
    else:
        _show(made, where, again=again, as_json=as_json)


def check_seeds(seeds: int) -> None:
    if seeds < 1:
        raise ConfigError(f"--seeds must be a number from 1, got {seeds}")


def where_of(on: str, processes: int | None, address: str | None, cpus: float | None) -> "tuple[Where, str | None]":
    """Where runs are computed, and the address that belongs to the runs themselves."""
    from offbeat.lab.studies.places import Where, take_address

    words = {"address": address}
    return Where(on, processes, take_address(on, words), cpus), words.get("address")


def _show(made: "Comparison", where: "Where", *, again: bool, as_json: bool) -> None:
    """Runs what is not done; prints the verdict and the table; leaves a picture and a page beside the runs."""
    from offbeat import terminal

    without = not_drawn()
    if without:
        print(without, file=sys.stderr)
    finished = run_study(made, "comparing", where, again=again, quiet=as_json)
    target = None if made.target is None else str(made.target)
    if as_json:
        print(json.dumps(json_safe(made.rows())))
    else:
        terminal.show_verdict(terminal.console(), made.verdict if finished else ())
        terminal.show_comparison(terminal.console(), made.lines, target)
    say_interrupted(finished)
    written: dict[str, Path] = {}
    if made.page and not without:
        written["picture"] = made.own_file("comparison.png")
        made.plot(written["picture"])
    if made.page:
        written["page"] = made.page.save(made.own_file("report.html"))
    shown = "\n".join(f"{name:8} {path}" for name, path in {**written, "runs": made.folder}.items())
    print(f"\n{shown}", file=sys.stderr if as_json else sys.stdout)
    for failure in made.failures:
        raise OffbeatError(failure)


def not_drawn() -> str:
    """Why there will be no picture: said before the first run, not after the last. The page needs no library."""
    try:
        import matplotlib  # noqa: F401  # also where it is installed, and broken
    except ImportError:
        return "without a picture: matplotlib is missing (pip install 'offbeat[figures]')"
    return ""


def run_study(made: "Study", label: str, where: "Where", *, again: bool, quiet: bool) -> bool:
    """Runs what is not done, and says what is not run; False when interrupted."""
    from offbeat.progress import cells_progress

    where.side_by_side(made.cells)
    if where.on == "here" and any(c.config["engine"] == "ray" for c in made.cells):
        print("real runs on Ray, one after another (--on ray spreads simulated ones over a cluster)", file=sys.stderr)
    if not again and made.collect():
        print(made.said_shown("--again"), file=sys.stderr)
    with cells_progress(label, made.cells, quiet=quiet) as changed:
        return made.run(where, again=again, on_change=changed)


def say_interrupted(finished: bool) -> None:
    if not finished:
        print("interrupted; the same command goes on", file=sys.stderr)
        raise typer.Exit(exit_code())


def demo(
    out: Annotated[Path, typer.Option(help="folder for the runs and the picture")] = Path("demo"),
    again: AgainOpt = False,
) -> None:
    """Six solvers side by side on the digits: 8 workers, one of them slow. Less than a minute on 2 cores."""
    from offbeat.lab.studies.comparing import plan
    from offbeat.lab.studies.study import HERE

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
    settings = {f"{solver}:{key}": value for solver, mine in own.items() for key, value in mine.items()}
    _show(plan(values, list(own), 3, "accuracy=0.9", out, settings), HERE, again=again, as_json=False)
