"""`offbeat replay`, `calibrate`: what a real run can tell."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from offbeat.cli.options import JsonOpt, SetOpt, TrustOpt
from offbeat.cli.output import json_safe
from offbeat.core.errors import ConfigError
from offbeat.core.legible import legible
from offbeat.core.units import counted


def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run on the local engine")],
    solver: Annotated[str | None, typer.Option(help="what if: the same arrivals under another rule")] = None,
    settings: SetOpt = None,
    trust: TrustOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Compute a real run again from its record. Through a server, every bit is the same."""
    from offbeat.lab.config import parse_setting
    from offbeat.lab.studies.replaying import replay as recompute

    changes = dict(parse_setting(text) for text in settings or ())
    found = recompute(folder, solver=solver, settings=changes, trust=trust)
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


def calibrate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="folders of runs on real processes, or recordings (.json, .json.gz, .csv)"
        ),
    ],
    check: Annotated[list[Path] | None, typer.Option(help="another real run: how well is it predicted?")] = None,
    target: Annotated[str | None, typer.Option(help="compare the time to this, too: accuracy=0.9")] = None,
    steps: Annotated[str | None, typer.Option(help="in a trace: which slices are steps, such as 'train_step*'")] = None,
    out: Annotated[
        Path | None, typer.Option(help="where the cluster goes (default: RUN/cluster.toml, or cluster.toml)")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="a page that shows the fit beside the data: fit.html")] = None,
    times: Annotated[
        Path | None, typer.Option(help="of one run: its times as they were, for compute = 'trace(times.csv)'")
    ] = None,
    trust: TrustOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Fit a cluster for the simulator to real runs or recordings, and say how well it predicts others."""
    from offbeat.core.budget import Target
    from offbeat.folders.recordings import is_recording
    from offbeat.folders.run_files import RunFiles
    from offbeat.folders.writing import write_file
    from offbeat.lab.fitting.playback import as_csv, played_times
    from offbeat.lab.studies.calibrate import as_toml
    from offbeat.lab.studies.calibrate import calibrate as fit
    from offbeat.lab.studies.prediction import check as predict

    if target is not None:
        Target.parse(target)
    if report is not None and report.suffix != ".html":
        raise ConfigError(f"--report must be an .html file, got {report.name!r}")
    if times is not None and (len(paths) > 1 or is_recording(paths[0])):
        raise ConfigError("--times is of one run on real processes")
    found = fit(paths, steps=steps)
    if times is not None:
        played = as_csv(played_times(RunFiles.open(paths[0])))
        write_file(times, lambda file: file.write(played.encode()))
    checks = [predict(found, other, target, trust=trust) for other in check or ()]
    alone = paths[0] if len(paths) == 1 and paths[0].is_dir() else Path()
    place = out or alone / "cluster.toml"
    write_file(place, lambda file: file.write(as_toml(found).encode()))
    if report is not None:
        found.page().save(report)
    if as_json:
        told = {"cluster": found.cluster.to_dict(), "unknown": found.unknown, "file": str(place), "checks": checks}
        print(json.dumps(json_safe(told)))
        return
    print(as_toml(found).partition("[fit]")[0].strip())
    print()
    for what in found.unknown:
        print(f"cannot tell {legible(what)}")
    print(f"written to {legible(place)}" + ("" if report is None else f", {legible(report)}"))
    for row in checks:
        _show_check(row)


def _show_check(found: dict[str, Any]) -> None:
    print(f"\n{found['solver']} on {counted(found['workers'], 'worker')}, {legible(found['run'])}:")
    print(f"  {'':24}{'real':>10}{'simulated':>11}{'off':>8}")
    for name, row in found.items():
        if isinstance(row, dict):
            off = "-" if row["off_percent"] is None else f"{row['off_percent']:+.1f}%"
            print(f"  {name:24}{_number(row['real']):>10}{_number(row['simulated']):>11}{off:>8}")
