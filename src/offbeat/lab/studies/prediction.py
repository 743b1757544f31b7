"""How well the simulator on a fitted cluster predicts a real run."""

from pathlib import Path
from typing import Any

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError, StoreError
from offbeat.folders.description import ENDED
from offbeat.folders.run_files import RunFiles
from offbeat.lab.config import make
from offbeat.lab.fitting.evidence import cluster_of
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.result import Run
from offbeat.lab.runs.trust import check_trusted
from offbeat.lab.studies.calibrate import Calibration, machine


def check(found: Calibration, path: Path, target: str | None = None, *, trust: bool = False) -> dict[str, Any]:
    """How well the simulator on this cluster predicts another real run: throughput, staleness, time to a target."""
    run = RunFiles.open(path)
    if run.config.get("from") == "python":
        raise ConfigError(f"{path} was made by a Python script, and cannot be simulated from its folder alone")
    if run.clock != "wall":
        raise ConfigError(f"{path} is itself a simulation: check against a run on the local engine")
    if run.status not in ENDED:
        raise StoreError(f"{path} is {run.status}: only a finished run can be compared")
    check_trusted(run, trust)
    simulated = predict(found, run, run.seed)
    real = run.summary
    goal = target or real.get("target")
    pairs = {
        "samples_per_second": (real["samples_per_second"], rate(simulated)),
        "mean_staleness": (real["mean_staleness"], simulated.summary["mean_staleness"]),
    }
    if goal:
        wanted = Target.parse(goal)
        measured = run.metrics().to_pylist()
        pairs[f"time_to_{goal}"] = (wanted.time(measured), wanted.time(simulated.metrics.to_pylist()))
    told: dict[str, Any] = {"run": str(path), "solver": real["solver"], "workers": real["workers"]}
    for name, (was, would) in pairs.items():
        told[name] = {"real": was, "simulated": would, "off_percent": off(was, would)}
    return told


def predict(found: Calibration, run: RunFiles, seed: int) -> Run:
    """The same configuration on the fitted machine, in virtual time. It trusts the folder: ask before."""
    theirs = machine(found.computing, found.noise, found.exchanges, found.crowd.sharing, cluster_of(run))
    values = {**run.config, "engine": "sim", "cluster": theirs.to_dict(), "seed": seed}
    for section in ("local", "ray"):
        values.pop(section, None)
    return execute(build(make(values)), None)


def rate(run: Run) -> float:
    """Samples a virtual second."""
    return float(run.summary["samples"] / run.summary["virtual_seconds"])


def off(was: float | None, would: float | None) -> float | None:
    """In per cent of what was."""
    return None if was is None or would is None or was == 0 else 100 * (would - was) / was
