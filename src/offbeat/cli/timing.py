"""`offbeat time`: the clock alone, for thousands of workers."""

import json
from typing import Annotated

import typer

from offbeat.cli.options import (
    BandwidthOpt,
    ClusterOpt,
    ComputeOpt,
    DelayOpt,
    DryOpt,
    JsonOpt,
    LatencyOpt,
    SeedOpt,
    SetOpt,
    WorkersOpt,
    read_settings,
    solver_names,
)
from offbeat.cli.output import json_safe, print_estimate


def time(
    solver: Annotated[
        str, typer.Option(help="the rule, or several separated by commas", autocompletion=solver_names)
    ] = "asgd",
    cluster: ClusterOpt = None,
    workers: WorkersOpt = None,
    compute: ComputeOpt = None,
    delay: DelayOpt = None,
    latency: LatencyOpt = None,
    bandwidth: BandwidthOpt = None,
    service: Annotated[str | None, typer.Option(help="what the server takes for one message")] = None,
    size: Annotated[str, typer.Option(help="of one parameter vector: 100MB")] = "0B",
    budget: Annotated[str, typer.Option(help="10000updates, or 60s (virtual)")] = "10000updates",
    settings: SetOpt = None,
    seed: SeedOpt = 0,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Simulate the clock alone, without gradients: throughput, staleness, idle time, queueing.

    Unless said otherwise there are 100 workers, a batch takes normal(1s, 0.2s), and the server 1 ms a message.
    Several solvers are compared in samples a second: an update of one that waits for everybody is made of everybody's
    gradients.
    """
    from offbeat import terminal
    from offbeat.lab.studies.clocking import time as clock_alone
    from offbeat.lab.studies.clocking import what_would_run

    chosen = read_settings(settings)
    if workers is not None:
        chosen = {"cluster.workers": workers, **chosen}
    flags = {"compute": compute, "delay": delay, "latency": latency, "bandwidth": bandwidth, "service": service}
    if dry_run:
        print_estimate(what_would_run(solver, cluster, budget, flags, chosen), as_json)
        return
    found = clock_alone(
        solver,
        cluster,
        budget=budget,
        **flags,  # type: ignore[arg-type]
        size=size,
        seed=0 if seed is None else seed,
        settings=chosen,
        progress=False if as_json else None,
    ).summaries
    if as_json:
        print(json.dumps(json_safe(found if len(found) > 1 else found[0])))
    elif len(found) == 1:
        terminal.show_timing(terminal.console(), found[0])
    else:
        terminal.show_timings(terminal.console(), found)
