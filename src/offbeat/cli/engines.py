"""`offbeat replay`, `calibrate`: what a real run can tell."""

import json
from pathlib import Path
from typing import Annotated

import typer

from offbeat.cli.options import JsonOpt, SetOpt
from offbeat.cli.output import json_safe


def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run on the local engine")],
    solver: Annotated[str | None, typer.Option(help="what if: the same arrivals under another rule")] = None,
    settings: SetOpt = None,
    as_json: JsonOpt = False,
) -> None:
    """Compute a real run again from its record. Through a server, every bit is the same."""
    from offbeat.lab.config import parse_setting
    from offbeat.lab.replay import replay as recompute

    found = recompute(folder, solver=solver, settings=dict(parse_setting(text) for text in settings or ()))
    if as_json:
        print(json.dumps(json_safe(found)))
    else:
        real = found["real"]
        print(f"{found['solver']}: {found['updates']:,} updates, {found['gradients']:,} gradients computed again")
        if found["what_if"]:
            print(f"{'':14}{'loss':>10}{'accuracy':>10}")
            for name, row in ((f"real {real['solver']}", real), (f"{found['solver']}", found)):
                print(f"{name:14}{_number(row['loss']):>10}{_number(row['accuracy']):>10}")
            print(f"calls left out, because their worker would have been waiting: {found['calls_left_out']}")
        elif found["equal"]:
            print("the parameters are equal, bit for bit")
        else:
            print(f"distance {found['distance']:.3g} ({found['relative_distance']:.2%} of their norm): {found['why']}")
    if not found["what_if"] and not found["equal"] and "please report" in str(found["why"]):
        raise typer.Exit(1)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
