"""`offbeat time`: the clock alone, for thousands of workers."""

import json
from typing import Annotated, Any

import typer

from offbeat.cli.options import DelayOpt, JsonOpt, SeedOpt, SetOpt, SolverOpt
from offbeat.cli.output import json_safe
from offbeat.core.errors import ConfigError


def time(
    solver: SolverOpt = "asgd",
    workers: Annotated[int, typer.Option(help="number of workers")] = 100,
    compute: Annotated[str, typer.Option(help="time of one batch: 10ms, normal(1s,0.2s), ...")] = "normal(1s, 0.2s)",
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
    """Simulate the clock alone, without gradients: throughput, staleness, idle time, queueing."""
    from offbeat import terminal
    from offbeat.core.budget import Amount
    from offbeat.core.units import parse_size
    from offbeat.engines.cluster import Cluster
    from offbeat.lab.config import parse_setting
    from offbeat.lab.timing import rule_of, simulate

    values: dict[str, Any] = {"workers": workers, "compute": compute, "delay": delay or [], "latency": latency}
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
    rule = rule_of(str(solver), options)
    rule.label = solver  # type: ignore[attr-defined]
    with terminal.time_progress(f"timing {solver}", amount, quiet=as_json) as progress:
        found = simulate(
            Cluster.parse(**values),
            rule,
            updates=int(amount.count) if amount.unit == "updates" else None,
            seconds=amount.count if amount.unit == "seconds" else None,
            nbytes=parse_size(size, "--size"),
            seed=0 if seed is None else seed,
            progress=progress,
        )
    if as_json:
        print(json.dumps(json_safe(found.summary)))
    else:
        terminal.show_timing(terminal.console(), found.summary)
