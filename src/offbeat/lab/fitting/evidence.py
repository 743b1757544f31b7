"""What a real run or a recording tells about a cluster: times of gradients, of messages, of sums and of the server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.effects import AllReduce
from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.seeds import Draws
from offbeat.engines.cluster import Cluster
from offbeat.folders.description import ENDED
from offbeat.folders.recordings import Recording
from offbeat.folders.run_files import RunFiles, rows
from offbeat.lab.fitting.transfers import Row, Transfer, transfers, unqueued
from offbeat.solvers import SOLVERS, solver_class

WARM = 3  # first gradients of a worker, slower than all others
FEWEST = 20
_FLOAT = 4  # bytes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """The gradients of one worker, in order."""

    worker: int
    started: Floats
    seconds: Floats
    """Computing alone, without an injected delay."""
    samples: NDArray[np.int64]

    @property
    def batch(self) -> int:
        """The usual one: the last of an epoch may be smaller."""
        return int(np.median(self.samples)) if len(self.samples) else 0

    @property
    def usual(self) -> Floats:
        """The times of batches of the usual size."""
        return np.asarray(self.seconds[self.samples == self.batch])


@dataclass(frozen=True)
class Evidence:
    """One run or recording."""

    label: str
    kind: str
    """The engine of a run, or the kind of a recording."""
    workers: int
    series: Sequence[Series]
    solver: str | None = None
    model: str = ""
    """What was trained: only gradients of one model can be compared."""
    nbytes: int = 0
    """Of one parameter vector; 0 where nobody knows."""
    ways: Floats = field(default_factory=lambda: np.zeros(0))
    """Seconds of a message between a worker and the server, one way."""
    served: float = 0.0
    calls: int = 0
    """Seconds that the server was busy, and with how many messages."""
    sums: Floats = field(default_factory=lambda: np.zeros(0))
    """Seconds of an all-reduce, from the last who came."""
    turns: Floats = field(default_factory=lambda: np.zeros(0))
    """Seconds from a gradient to the next one, where workers share a vector without a lock: an add and a read."""
    rate: float | None = None
    """Samples a second."""
    moved: Sequence[Transfer] = ()
    """Messages that crossed machines, one by one; none of a run on one machine."""
    cluster: Cluster | None = None
    """What a run was configured with: its delays and events."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of its solver."""

    @property
    def batch(self) -> int | None:
        """The usual batch; None where nobody knows."""
        sizes = [s.batch for s in self.series if s.batch]
        return int(np.median(sizes)) if sizes else None

    @property
    def gradients(self) -> int:
        return sum(len(s.seconds) for s in self.series)


def of_run(run: RunFiles) -> Evidence:
    """What a finished run on real processes tells."""
    if run.clock != "wall":
        raise ConfigError(f"{run.path} has no wall times to learn from: it ran on the {run.info.engine} engine")
    if run.status not in ENDED:
        raise StoreError(f"{run.path} is {run.status}: only a finished run can be calibrated")
    cluster = cluster_of(run)
    wanted = rows(run.trace(), "worker", "draw", "applied", "samples", "started", "computed", "time")
    useful = [r for r in wanted if r["applied"] and r["samples"] and r["draw"] is not None]
    series = compute_times(useful, cluster, run.seed)
    if sum(len(s.seconds) for s in series) < FEWEST:
        raise ConfigError(
            f"{run.path} has too few gradients: {FEWEST} are needed after the first {WARM} of each worker"
        )
    calls = [e for e in rows(run.arrivals(), "time", "what", "worker") if e["what"] == "call"]
    served = (run.summary["server_busy_share"] or 0.0) * (run.seconds or 0.0) if calls else 0.0
    asks = solver_class(run.solver).asks if run.solver in SOLVERS else frozenset()
    moved = [] if overlaps(run) else transfers(useful, calls, served / len(calls) if calls else 0.0)
    return Evidence(
        run.name,
        run.info.engine,
        cluster.workers,
        series,
        run.solver,
        f"{run.task} ({run.info.task.get('parameters') or '?'} parameters)",
        _nbytes(run, len(calls)),
        unqueued(moved),
        served,
        len(calls),
        sums(useful, cluster.workers) if AllReduce in asks and not calls else np.zeros(0),
        turns(useful) if _shares_freely(run) else np.zeros(0),
        run.summary["samples_per_second"],
        moved if _crosses_machines(run) else (),
        cluster,
        {name: value for name, value in run.config.get("solver", {}).items() if name != "name"},
    )


def of_recording(found: Recording) -> Evidence:
    """What a recording tells: how long steps took, and nothing about what a step waited for."""
    series = []
    for k, steps in enumerate(found.workers):
        seconds = steps.seconds[WARM:] if len(steps.seconds) > 2 * WARM else steps.seconds
        cut = len(steps.seconds) - len(seconds)
        started = steps.started[cut:] if steps.started is not None else np.cumsum(seconds) - seconds
        samples = steps.samples[cut:] if steps.samples is not None else np.zeros(len(seconds), np.int64)
        series.append(Series(k, started, seconds, samples))
    if sum(len(s.seconds) for s in series) < FEWEST:
        raise ConfigError(f"{found.path} has too few steps: {FEWEST} are needed after the first {WARM} of each worker")
    return Evidence(found.path.name, found.kind, len(series), series)


def cluster_of(run: RunFiles) -> Cluster:
    """The cluster that a run was configured with."""
    try:
        return Cluster.parse(**run.config.get("cluster", {}))
    except TypeError as e:
        raise StoreError(f"{run.path} has a cluster of another kind: {e}") from None


def _crosses_machines(run: RunFiles) -> bool:
    """Whether it ran on a cluster that was there; a Ray of its own is on one machine."""
    return run.info.engine == "ray" and bool(run.config.get("ray", {}).get("address"))


def _shares_freely(run: RunFiles) -> bool:
    """Whether between two gradients there are an add to a shared vector and a read of it, and nothing else."""
    return run.solver == "hogwild" and not run.config.get("solver", {}).get("locked", False)


def _nbytes(run: RunFiles, calls: int) -> int:
    """Of a message, where they were counted: there and back for each call. Otherwise by the number of parameters."""
    if calls and run.summary["bytes"]:
        return int(run.summary["bytes"] / (2 * calls))
    return int(run.info.task.get("parameters") or 0) * _FLOAT


def compute_times(gradients: Sequence[Row], cluster: Cluster, seed: int) -> list[Series]:
    """Each worker's gradients, without the delay that was injected, which is known exactly."""
    found = []
    for worker in sorted({r["worker"] for r in gradients if r["worker"] < cluster.workers}):
        kinds = enumerate(cluster.delays_of(worker))
        delays = [Draws(d.sample, seed=seed, stream=f"delay{k}", source=worker) for k, d in kinds]
        mine = sorted((r for r in gradients if r["worker"] == worker), key=lambda r: r["draw"])
        at, injected, kept = 0, 0.0, []
        first = mine[0]["draw"]
        for k, row in enumerate(mine):
            while at <= row["draw"]:  # every batch drawn has taken its delay, whatever became of it
                injected = sum(d.next() for d in delays)
                at += 1
            if k >= WARM and row["draw"] > first:
                takes = max(1e-9, row["computed"] - row["started"] - injected)
                kept.append((row["started"] + injected, takes, row["samples"]))
        if kept:
            started, seconds, samples = (np.array(column) for column in zip(*kept, strict=True))
            found.append(Series(worker, started, seconds, samples))
    return found


def overlaps(run: RunFiles) -> bool:
    """Whether its workers computed while their messages were under way: then nothing began with an answer."""
    solver = run.config.get("solver")
    return isinstance(solver, dict) and solver.get("overlap") in (True, "True")  # as a setting, or of an object


def sums(gradients: Sequence[Row], workers: int) -> Floats:
    """Seconds from the last who came to an all-reduce to the first who went on: the round is the draw."""
    rounds: dict[int, list[Row]] = {}
    for row in gradients:
        rounds.setdefault(row["draw"], []).append(row)
    whole = [r for _, r in sorted(rounds.items()) if len(r) == workers]
    gaps = [min(r["started"] for r in after) - max(r["computed"] for r in now) for now, after in pairwise(whole)]
    return np.array([g for g in gaps if g >= 0])


def turns(gradients: Sequence[Row]) -> Floats:
    """Seconds between a worker's gradients: it adds the one to the shared vector and reads it again."""
    found: list[float] = []
    for worker in {r["worker"] for r in gradients}:
        mine = sorted((r for r in gradients if r["worker"] == worker), key=lambda r: r["started"])
        found += [after["started"] - row["computed"] for row, after in pairwise(mine)]
    return np.array([t for t in found if t >= 0])
