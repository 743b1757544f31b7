"""`offbeat delays`: how stale gradients are, by simulating the timing alone."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.cli.options import DelayOpt, JsonOpt
from offbeat.core.errors import ConfigError


def delays(
    workers: Annotated[str, typer.Option(help="number of workers, or several: 4,16,64")] = "8",
    compute: Annotated[
        str, typer.Option(help="seconds a gradient: normal(1,0.2), lognormal(...), 10ms")
    ] = "normal(1,0.2)",
    delay: DelayOpt = None,
    latency: Annotated[str, typer.Option(help="of a message")] = "0s",
    updates: Annotated[int, typer.Option(help="how many to simulate")] = 100_000,
    solver: Annotated[str, typer.Option(help="the rule")] = "asgd",
    seed: Annotated[int, typer.Option(help="seed of the times")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="a page (.html) or a picture (.svg, .png, .pdf)")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """The distribution of staleness and its normal fit, without any training (jain2018, Figure 1)."""
    from offbeat.cli.output import print_rows
    from offbeat.engines.cluster import Cluster
    from offbeat.lab.studies.delays import simulate
    from offbeat.report.draw.as_matplotlib import FORMATS
    from offbeat.report.pages import delay_study as drawn

    if out is not None and out.suffix.lstrip(".") not in ("html", *FORMATS):
        raise ConfigError(f"--out must be .html, .svg, .png or .pdf, got {out.name!r}")
    counts = [_count(w) for w in workers.split(",")]
    settings: dict[str, Any] = {"compute": compute, "delay": delay or [], "latency": latency}
    clusters = {w: Cluster.parse(workers=w, **settings) for w in counts}
    found = {w: simulate(c, updates, solver=solver, seed=seed) for w, c in clusters.items()}
    fits = [drawn.fit(taus, w) for w, taus in found.items()]
    if as_json:
        print(json.dumps(fits))
    else:
        table = drawn.table(fits)
        print_rows([dict(zip(table.columns, row, strict=True)) for row in table.rows])
        print(f"\n{table.caption}")
    if out is not None:
        about = f"{solver} with compute time {compute}"
        if out.suffix == ".html":
            drawn.page(found, about).save(out)
        else:
            drawn.figure(found).save(out)
        if not as_json:
            print(f"\npicture  {out}")


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= 100_000:
        raise ConfigError(f"--workers takes numbers from 1, separated by commas, got {text!r}")
    return count
