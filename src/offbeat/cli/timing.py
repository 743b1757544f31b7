"""`offbeat time`: the clock alone, for thousands of workers."""

import json
from typing import Annotated, Any

import typer

from offbeat.cli.options import ComputeOpt, DelayOpt, JsonOpt, SeedOpt, SetOpt, solver_names
from offbeat.cli.output import json_safe
from offbeat.core.errors import ConfigError


def time(
    solver: Annotated[
        str, typer.Option(help="the rule, or several separated by commas", autocompletion=solver_names)
    ] = "asgd",
    workers: Annotated[int, typer.Option(help="number of workers")] = 100,
    compute: ComputeOpt = None,
    delay: DelayOpt = None,
    latency: Annotated[str, typer.Option(help="of one message, each way")] = "0s",
    bandwidth: Annotated[str, typer.Option(help="of a worker's link: 10Gbps")] = "unlimited",
    service: Annotated[str, typer.Option(help="what the server takes for one message")] = "1ms",
    size: Annotated[str, typer.Option(help="of one parameter vector: 100MB")] = "0B",
    budget: Annotated[str, typer.Option(help="10000updates, or 60s (virtual)")] = "10000updates",
    settings: SetOpt = None,
    seed: SeedOpt = 0,
    as_json: JsonOpt = False,
) -> None:
    """Simulate the clock alone, without gradients: throughput, staleness, idle time, queueing.

    A batch takes normal(1s, 0.2s) unless --compute says otherwise. Several solvers are compared in samples a second:
    an update of one that waits for everybody is made of everybody's gradients.
    """
    from offbeat import terminal
    from offbeat.core.budget import Amount
    from offbeat.core.units import parse_size
    from offbeat.engines.cluster import Cluster
    from offbeat.lab.config import parse_setting
    from offbeat.lab.studies.timing import rule_of, simulate

    values: dict[str, Any] = {
        "workers": workers,
        "compute": compute or ["normal(1s, 0.2s)"],
        "delay": delay or [],
        "latency": latency,
    }
    values |= {"bandwidth": bandwidth, "service": service}
    options: dict[str, Any] = {}
    for text in settings or ():
        key, value = parse_setting(text)
        section, _, name = key.partition(".")
        if section not in ("cluster", "solver") or not name:
            raise ConfigError(f"offbeat time takes --set cluster.KEY=... and solver.KEY=..., got {key!r}")
        (values if section == "cluster" else options)[name] = value
    amount = Amount.parse(budget, "--budget")
    if amount.unit not in ("updates", "seconds"):
        raise ConfigError(f"--budget must be in updates or virtual seconds here, got {budget!r}")
    names = [n.strip() for n in solver.split(",") if n.strip()]
    if not names:
        raise ConfigError(f"--solver takes a name, or several separated by commas, got {solver!r}")
    if options and len(names) > 1:
        raise ConfigError("--set solver.KEY=... is for one solver, got several")
    cluster, nbytes = Cluster.parse(**values), parse_size(size, "--size")
    found = []
    for name in names:
        rule = rule_of(name, options)
        rule.label = name  # type: ignore[attr-defined]
        with terminal.time_progress(f"timing {name}", amount, quiet=as_json) as progress:
            timed = simulate(
                cluster,
                rule,
                updates=int(amount.count) if amount.unit == "updates" else None,
                seconds=amount.count if amount.unit == "seconds" else None,
                nbytes=nbytes,
                seed=0 if seed is None else seed,
                progress=progress,
            )
        found.append(timed.summary)
    if as_json:
        print(json.dumps(json_safe(found if len(found) > 1 else found[0])))
    elif len(found) == 1:
        terminal.show_timing(terminal.console(), found[0])
    else:
        terminal.show_timings(terminal.console(), found)
