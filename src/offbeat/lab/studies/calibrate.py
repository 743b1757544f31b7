"""`offbeat calibrate`: a cluster for the simulator, fitted to a real run, and how well it predicts others."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.seeds import Draws
from offbeat.engines.cluster import Cluster, PerWorker
from offbeat.engines.cluster.distributions import Constant, Lognormal
from offbeat.folders.description import ENDED
from offbeat.folders.run_files import RunFiles, rows
from offbeat.lab.config import make, to_toml
from offbeat.lab.runs.conditions import cores
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.trust import check_trusted

_WARM = 3  # first gradients of a worker, slower than all others
_APART = 1.1  # workers whose mean times differ by more get entries of their own
_FEWEST = 20
_HELD = 0.001  # seconds

Row = Mapping[str, Any]


def calibrate(path: Path) -> Cluster:
    """The cluster that a real run was: compute time, latency each way and service time from its trace."""
    run = RunFiles.open(path)
    if run.clock != "wall":
        raise ConfigError(f"{path} has no wall times to learn from: it ran on the {run.info.engine} engine")
    if run.status not in ENDED:
        raise StoreError(f"{path} is {run.status}: only a finished run can be calibrated")
    cluster = cluster_of(run)
    wanted = rows(run.trace(), "worker", "draw", "applied", "samples", "started", "computed", "time")
    useful = [r for r in wanted if r["applied"] and r["samples"] and r["draw"] is not None]
    times = compute_times(useful, cluster, run.seed)
    if sum(map(len, times.values())) < _FEWEST:
        raise ConfigError(f"{path} has too few gradients: {_FEWEST} are needed after the first {_WARM} of each worker")
    calls = [e for e in rows(run.arrivals(), "time", "what", "worker") if e["what"] == "call"]
    busy = run.summary["server_busy_share"] or 0.0
    service = busy * (run.seconds or 0.0) / len(calls) if calls else 0.0
    return replace(
        cluster,
        compute=_entries(times),
        latency=latency(useful, calls, service),
        service=Constant(service),
    )


def cluster_of(run: RunFiles) -> Cluster:
    """The cluster that a run was configured with."""
    try:
        return Cluster.parse(**run.config.get("cluster", {}))
    except TypeError as e:
        raise StoreError(f"{run.path} has a cluster of another kind: {e}") from None


def compute_times(gradients: Sequence[Row], cluster: Cluster, seed: int) -> dict[int, list[float]]:
    """Seconds of each worker's gradients, without the delay that was injected, which is known exactly."""
    found: dict[int, list[float]] = defaultdict(list)
    for worker in sorted({r["worker"] for r in gradients if r["worker"] < cluster.workers}):
        kinds = enumerate(cluster.delays_of(worker))
        delays = [Draws(d.sample, seed=seed, stream=f"delay{k}", source=worker) for k, d in kinds]
        mine = sorted((r for r in gradients if r["worker"] == worker), key=lambda r: r["draw"])
        at, injected = 0, 0.0
        first = mine[0]["draw"]
        for k, row in enumerate(mine):
            while at <= row["draw"]:  # every batch drawn has taken its delay, whatever became of it
                injected = sum(d.next() for d in delays)
                at += 1
            if k >= _WARM and row["draw"] > first:
                found[worker].append(max(1e-9, row["computed"] - row["started"] - injected))
    return dict(found)


def latency(gradients: Sequence[Row], calls: Sequence[Row], service: float) -> float:
    """One way, as a median: from computed to heard at the server, and from served to begun with the next.

    A gradient that the server held back was served when it was applied.
    """
    ways: list[float] = []
    for worker in {r["worker"] for r in gradients}:
        heard = [c["time"] for c in calls if c["worker"] == worker]
        mine = sorted((r for r in gradients if r["worker"] == worker), key=lambda r: r["started"])
        for row, after in pairwise(mine):
            k = bisect_left(heard, row["computed"])
            if k < len(heard) and heard[k] <= row["time"] + 1e-9:
                ways.append(max(0.0, heard[k] - row["computed"]))
                held = row["time"] - heard[k] > max(3 * service, _HELD)
                ways.append(max(0.0, after["started"] - (row["time"] if held else heard[k] + service)))
    return median(ways) if ways else 0.0


def _entries(times: Mapping[int, list[float]]) -> tuple[PerWorker, ...]:
    """One distribution for all; and one of its own for a worker that is clearly faster or slower."""
    together = [t for values in times.values() for t in values]
    typical = median(fmean(values) for values in times.values())
    apart = [i for i, values in times.items() if not typical / _APART <= fmean(values) <= typical * _APART]
    common = [t for i, values in times.items() if i not in apart for t in values] or together
    entries = [PerWorker(Lognormal(fmean(common), pstdev(common)))]
    entries += [PerWorker(Lognormal(fmean(times[i]), pstdev(times[i])), (i,)) for i in sorted(apart)]
    return tuple(entries)


def predicted(cluster: Cluster, theirs: Cluster) -> Cluster:
    """The calibrated machine with the workers, delays and events of another one.

    Workers beyond the number of cores share them: a gradient then takes so much longer.
    """
    crowd = max(1.0, theirs.workers / cores()) / max(1.0, cluster.workers / cores())
    compute = []
    for entry in cluster.compute:
        if entry.workers is not None and max(entry.workers) >= theirs.workers:
            continue
        assert isinstance(entry.distribution, Lognormal)
        mean, std = entry.distribution.mean * crowd, entry.distribution.std * crowd
        compute.append(PerWorker(Lognormal(mean, std), entry.workers))
    return replace(theirs, compute=tuple(compute), latency=cluster.latency, service=cluster.service)


def check(cluster: Cluster, path: Path, target: str | None = None, *, trust: bool = False) -> dict[str, Any]:
    """How well the simulator on this cluster predicts another real run: throughput, staleness, time to a target."""
    run = RunFiles.open(path)
    if run.config.get("from") == "python":
        raise ConfigError(f"{path} was made by a Python script, and cannot be simulated from its folder alone")
    if run.clock != "wall":
        raise ConfigError(f"{path} is itself a simulation: check against a run on the local engine")
    if run.status not in ENDED:
        raise StoreError(f"{path} is {run.status}: only a finished run can be compared")
    check_trusted(run, trust)
    values = {**run.config, "engine": "sim", "cluster": predicted(cluster, cluster_of(run)).to_dict()}
    simulated = execute(build(make(values)), None)
    real = run.summary
    goal = target or real.get("target")
    pairs = {
        "samples_per_second": (
            real["samples_per_second"],
            simulated.summary["samples"] / simulated.summary["virtual_seconds"],
        ),
        "mean_staleness": (real["mean_staleness"], simulated.summary["mean_staleness"]),
    }
    if goal:
        wanted = Target.parse(goal)
        measured = run.metrics().to_pylist()
        pairs[f"time_to_{goal}"] = (wanted.time(measured), wanted.time(simulated.metrics.to_pylist()))
    found: dict[str, Any] = {"run": str(path), "solver": real["solver"], "workers": real["workers"]}
    for name, (was, would) in pairs.items():
        off = None if was is None or would is None or was == 0 else 100 * (would - was) / was
        found[name] = {"real": was, "simulated": would, "off_percent": off}
    return found


def as_toml(cluster: Cluster) -> str:
    """A section that any run's configuration may hold."""
    return to_toml({"cluster": cluster.to_dict()})
