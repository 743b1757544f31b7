"""`offbeat run`, `resume`, `show`: one run and its folder."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from offbeat.cli.options import (
    AddressOpt,
    AgainOpt,
    BandwidthOpt,
    BatchOpt,
    BudgetOpt,
    ClusterOpt,
    ComputeOpt,
    DataOpt,
    DelayOpt,
    DivergenceOpt,
    DryOpt,
    EngineOpt,
    GlobalBatchOpt,
    JsonOpt,
    LatencyOpt,
    SavesOpt,
    SeedOpt,
    SetOpt,
    SolverOpt,
    TaskArg,
    TrustOpt,
    UntilOpt,
    WorkersOpt,
    read_values,
)
from offbeat.cli.output import EXIT, json_safe, print_dry_run
from offbeat.core.errors import ConfigError
from offbeat.core.interruption import exit_code
from offbeat.core.legible import legible


def run(
    task: TaskArg,
    solver: SolverOpt = None,
    engine: EngineOpt = None,
    address: AddressOpt = None,
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
    seed: SeedOpt = None,
    data: DataOpt = None,
    saves_per_epoch: SavesOpt = None,
    on_divergence: DivergenceOpt = None,
    out: Annotated[Path | None, typer.Option(help="this run's own folder (default: runs/<hash>)")] = None,
    pool: Annotated[int | None, typer.Option(help="threads that compute gradients (default: all cores)")] = None,
    checkpoint_every: Annotated[str, typer.Option(help="wall time between checkpoints")] = "30s",
    again: AgainOpt = False,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Train once; the run leaves a folder. A finished run is shown again, an unfinished one goes on."""
    from offbeat.core.units import parse_duration
    from offbeat.lab.config import make
    from offbeat.lab.runs.execute import check_pool

    check_pool(pool, "--pool")
    seconds = parse_duration(checkpoint_every, "--checkpoint-every")
    values = read_values(
        task,
        settings,
        cluster=cluster,
        budget=budget,
        solver=solver,
        workers=workers,
        batch=batch,
        global_batch=global_batch,
        until=until,
        compute=compute,
        delay=delay,
        latency=latency,
        bandwidth=bandwidth,
        seed=seed,
        engine=engine,
        address=address,
        data=data,
        saves_per_epoch=saves_per_epoch,
        on_divergence=on_divergence,
    )
    config = make(values)
    if dry_run:
        from offbeat.lab.runs.address import default_folder
        from offbeat.lab.runs.plan import build
        from offbeat.lab.studies.estimate import estimate

        plan = build(config)
        print_dry_run(estimate(plan, out or default_folder(plan.key, plan.config), pool), as_json)
        return
    _execute(config, out, pool=pool, again=again, checkpoint_seconds=seconds, as_json=as_json)


def _execute(
    config: Any, out: Path | None, *, pool: int | None, again: bool, checkpoint_seconds: float, as_json: bool
) -> NoReturn:
    from offbeat import terminal
    from offbeat.lab.engines import ENGINES
    from offbeat.lab.runs.address import default_folder
    from offbeat.lab.runs.execute import execute
    from offbeat.lab.runs.plan import build
    from offbeat.lab.watch.noticing import Noticing
    from offbeat.progress import run_progress

    plan = build(config)
    folder = default_folder(plan.key, plan.config) if out is None else out
    label = f"{plan.task.name} / {plan.solver_name}"
    if plan.engine == "sim" and ENGINES["threads"].why_not(plan.solver, plan) is None and not as_json:
        print("on a virtual cluster; --engine threads trains on this machine's cores, and far faster", file=sys.stderr)
    with run_progress(label, quiet=as_json and not sys.stderr.isatty()) as progress:
        noticing = Noticing(lambda line: print(line, file=sys.stderr), progress)
        done = execute(plan, folder, pool=pool, again=again, checkpoint_seconds=checkpoint_seconds, progress=noticing)
    noticing.look(plan.task)
    if done.shown:
        print(done.said_shown("--again"), file=sys.stderr)
    if as_json:
        print(json.dumps(json_safe(done.summary)))
    else:
        terminal.show_summary(terminal.console(), done.summary)
    if done.status == "interrupted":
        print(f"interrupted; go on with: offbeat resume {legible(folder)}", file=sys.stderr)
        raise typer.Exit(exit_code())
    if done.status in ("failed", "diverged"):
        print(f"{done.status}: {legible(done.why)}", file=sys.stderr)
    raise typer.Exit(EXIT[done.status])


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
    pool: Annotated[int | None, typer.Option(help="threads that compute gradients")] = None,
    checkpoint_every: Annotated[str, typer.Option(help="wall time between checkpoints")] = "30s",
    trust: TrustOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Go on with an interrupted or killed run: it ends with the same bits as one never interrupted."""
    from offbeat.core.units import parse_duration
    from offbeat.folders.run_files import RunFiles
    from offbeat.lab.config import make
    from offbeat.lab.runs.execute import check_pool
    from offbeat.lab.runs.trust import check_trusted

    check_pool(pool, "--pool")
    found = RunFiles.open(folder)
    if found.config.get("from") == "python":
        raise ConfigError(f"{folder} was made by a Python script: run the script again, it goes on by itself")
    seconds = parse_duration(checkpoint_every, "--checkpoint-every")
    check_trusted(found, trust, connects=True)
    _execute(make(found.config), folder, pool=pool, again=False, checkpoint_seconds=seconds, as_json=as_json)


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
    toml: Annotated[bool, typer.Option("--toml", help="its whole configuration, which `run` takes back")] = False,
    as_json: JsonOpt = False,
) -> None:
    """What a run was and how it went."""
    from offbeat import terminal
    from offbeat.folders.run_files import RunFiles
    from offbeat.lab.config.objects import recorded_toml

    found = RunFiles.open(folder)
    if toml:
        print(recorded_toml(found.config), end="")
    elif as_json:
        print(json.dumps(json_safe({**found.summary, "status": found.status, "run": str(folder)})))
    elif found.summary:
        terminal.show_summary(terminal.console(), {**found.summary, "run": str(folder)})
    else:
        print(f"{found.status}: not finished yet; go on with: offbeat resume {found.place}")
