"""`offbeat time`: the clock alone, for thousands of workers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat.cli.options import (
    BandwidthOpt,
    BatchOpt,
    ClusterOpt,
    ComputeOpt,
    DelayOpt,
    DryOpt,
    JsonOpt,
    LatencyOpt,
    SeedOpt,
    SetOpt,
    read_settings,
    solver_names,
)
from offbeat.cli.output import json_safe, print_dry_run
from offbeat.core.errors import ConfigError
from offbeat.core.legible import legible

if TYPE_CHECKING:
    from offbeat.lab.studies.more_workers import Scaling
    from offbeat.lab.studies.timings import Timings


def _sim(incomplete: str) -> list[str]:
    return ["sim"] if "sim".startswith(incomplete) else []


def time(
    solver: Annotated[
        str,
        typer.Option(
            "--solver", "--solvers", help="the rule, or several separated by commas", autocompletion=solver_names
        ),
    ] = "asgd",
    engine: Annotated[str | None, typer.Option(help="sim: the clock alone is virtual", autocompletion=_sim)] = None,
    cluster: ClusterOpt = None,
    workers: Annotated[
        str | None, typer.Option(help="their number, or several: 1..4096 (doubling), or 1,2,12", metavar="NUMBERS")
    ] = None,
    compute: ComputeOpt = None,
    delay: DelayOpt = None,
    latency: LatencyOpt = None,
    bandwidth: BandwidthOpt = None,
    service: Annotated[str | None, typer.Option(help="what the server takes for one message")] = None,
    server: Annotated[str | None, typer.Option(help="bandwidth of the server's own link, shared: 10Gbps")] = None,
    size: Annotated[str | None, typer.Option(help="of one parameter vector: 100MB")] = None,
    parameters: Annotated[str | None, typer.Option(help="number of them, of four bytes each: 25.6M")] = None,
    batch: BatchOpt = None,
    budget: Annotated[
        str | None, typer.Option(help="10000updates, or 60s (virtual); of several numbers of workers, of each")
    ] = None,
    settings: SetOpt = None,
    seed: SeedOpt = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="of several numbers of workers: a page (.html) or pictures (.svg, .png, .pdf)"
        ),
    ] = None,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Simulate the clock alone, without gradients: throughput, staleness, idle time, queueing.

    Of several numbers of workers (--workers 1..4096) it says what more of them bring, where that ends and why, and
    draws it (-o scaling.html).

    Unless said otherwise there are 100 workers, a batch takes normal(1s, 0.2s), and the server 1 ms a message.
    Several solvers are compared in samples a second: an update of one that waits for everybody is made of everybody's
    gradients.
    """
    from offbeat import terminal
    from offbeat.lab.studies.clocking import check_clock
    from offbeat.lab.studies.clocking import time as clock_alone
    from offbeat.lab.studies.more_workers import Scaling, check_suffix

    check_clock(engine)
    counts = int(workers) if workers is not None and workers.strip().isdecimal() else workers
    if out is not None:
        if isinstance(counts, int | None):
            raise ConfigError(f"--out draws several numbers of workers, such as --workers 1..4096, got {counts}")
        check_suffix(out)
    words: Any = {
        "compute": compute,
        "delay": delay,
        "latency": latency,
        "bandwidth": bandwidth,
        "service": service,
        "server": server,
        "workers": counts,
        "budget": budget,
        "size": size,
        "parameters": parameters,
        "batch": 1 if batch is None else batch,
        "seed": 0 if seed is None else seed,
        "settings": read_settings(settings),
        "progress": False if as_json else None,
    }
    if dry_run:
        print_dry_run(clock_alone(solver, cluster, dry_run=True, **words), as_json)
        return
    timed: Timings | Scaling = clock_alone(solver, cluster, **words)
    if isinstance(timed, Scaling):
        _show_scaling(timed, out, as_json)
        return
    found = timed.summaries
    if as_json:
        print(json.dumps(json_safe(found if len(found) > 1 else found[0])))
    elif len(found) == 1:
        terminal.show_timing(terminal.console(), found[0])
    else:
        terminal.show_timings(terminal.console(), found)


def _show_scaling(found: "Scaling", out: Path | None, as_json: bool) -> None:
    from offbeat import terminal

    saved = [] if out is None else found.save(out)
    if as_json:
        print(json.dumps(json_safe({"rows": [dict(r) for r in found.rows], "verdict": found.verdict})))
        return
    terminal.show_verdict(terminal.console(), found.verdict)
    terminal.show_scaling(terminal.console(), found.rows)
    for path in saved:
        print(f"\nwritten to {legible(path)}")
