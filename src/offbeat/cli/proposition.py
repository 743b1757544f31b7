"""`offbeat proposition1`: how many lock-free updates a sparse problem needs, and whether that is so."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from offbeat.cli.options import JsonOpt, SetOpt, read_settings
from offbeat.cli.output import json_safe
from offbeat.core.errors import ConfigError

_SAID = {
    "omega": "Omega, the most parameters that a term touches",
    "delta": "Delta, the largest share of terms that touch one parameter",
    "rho": "rho, the largest share of terms that one term meets",
    "L": "L, of the gradient",
    "M": "M, the largest gradient of a term, at the initial point and at the solution",
    "c": "c, the strong convexity",
    "D0": "D_0, the squared distance to the solution",
    "best": "f*, at the solution",
    "features": "parameters d",
    "tau": "tau, the largest lag in updates",
    "gamma": "gamma, the step size (8)",
    "k": "k, updates that are enough (9)",
    "slower": "times as many as without a lag",
    "holds": "whether gamma c < 1, as it needs",
    "epsilon": "epsilon, what is promised of f - f*",
    "measured": "f - f* after k updates of Hogwild!, mean over seeds",
    "largest_lag": "the largest lag that was seen",
    "check": "the proposition",
}


def proposition1(
    workers: Annotated[int, typer.Option(help="threads; the lag is one less, unless --tau is given")] = 2,
    tau: Annotated[int | None, typer.Option(help="the largest lag, in updates")] = None,
    epsilon: Annotated[float, typer.Option(help="what is asked of f - f*")] = 0.02,
    theta: Annotated[float, typer.Option(help="between 0 and 1")] = 0.9,
    settings: SetOpt = None,
    check: Annotated[bool, typer.Option("--check", help="also run Hogwild! with that step, so many updates")] = False,
    seeds: Annotated[int, typer.Option(help="of the check")] = 3,
    as_json: JsonOpt = False,
) -> None:
    """Proposition 1 of wongpanich2020 (the bound of Hogwild!) on sparse logistic regression, calculated and checked."""
    from offbeat.lab.papers.proposition1 import bound, made, measure
    from offbeat.lab.papers.proposition1 import check as run_check

    options = {"samples": 400, "features": 20, "nonzeros": 2, "support": "groups", "l2": 0.05}
    for key, value in read_settings(settings).items():
        if not key.startswith("task."):
            raise ConfigError(f"--set takes keys of the task here, such as task.features=100, got {key!r}")
        options[key.removeprefix("task.")] = value
    if workers < 1 or seeds < 1:
        raise ConfigError(f"--workers and --seeds must be numbers from 1, got {workers} and {seeds}")
    if check:
        if tau is not None:
            raise ConfigError("--tau is for the calculation; a check takes --workers, whose lag it measures")
        found = run_check(options, workers, epsilon, theta, seeds)
    else:
        m = measure(made(options))
        told = bound(m, workers - 1 if tau is None else tau, epsilon, theta)
        found = {**asdict(m), **asdict(told), "epsilon": epsilon}
    if as_json:
        print(json.dumps(json_safe(found)))
        return
    for name, value in found.items():
        shown = value if isinstance(value, str | bool) else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        print(f"{shown!s:>14}  {_SAID[name]}")
