"""How long a batch takes: by its size, on which worker, and beside how many others on the same cores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, median

import numpy as np

from offbeat.lab.fitting.evidence import Evidence
from offbeat.lab.fitting.exchanges import nonnegative

_APART = 1.1  # workers whose mean times differ by more have speeds of their own
_ERRORS = 4  # so many standard errors is more than chance
_SHARED = ("local", "debug")
"""Engines whose workers share the cores of one machine."""


def shares_cores(e: Evidence) -> bool:
    return e.kind in _SHARED


def crowded(e: Evidence, cores: int) -> bool:
    """More workers than the machine has cores."""
    return shares_cores(e) and e.workers > cores


def uncrowded(evidence: Sequence[Evidence], cores: int) -> list[Evidence]:
    """Runs whose every worker has a core of its own; all of them where none has."""
    return [e for e in evidence if not crowded(e, cores)] or list(evidence)


@dataclass(frozen=True)
class ComputingFit:
    """Seconds of a batch on a core of its own: base + per_sample * batch, divided by the worker's speed."""

    base: float
    per_sample: float
    speeds: Mapping[int, float]
    """Of workers that are clearly faster (above 1) or slower; 1 for all others."""
    cores: float | None
    """By how much crowds are slowed, as if computing alone shared so many; None where workers share nothing."""
    batch: int | None
    """The usual batch of what was measured."""
    unknown: tuple[str, ...] = field(default=())

    def seconds(self, batch: int | None, worker: int, workers: int, *, shared: bool = True) -> float:
        """The mean time of a batch among so many workers."""
        alone = (self.base + self.per_sample * (batch or 0)) / self.speeds.get(worker, 1.0)
        return alone * (crowding(workers, self.cores) if shared else 1.0)


def crowding(workers: int, cores: float | None) -> float:
    """So many times as long does a gradient take when workers share cores."""
    return 1.0 if cores is None else max(1.0, workers / cores)


def fit_computing(evidence: Sequence[Evidence], cores: int) -> ComputingFit:
    """From runs of one model. `cores` are the machine's, where runs cannot tell how many their workers have shared."""
    speeds = _speeds(evidence)
    shared = [e for e in evidence if shares_cores(e)]
    crowds = [e for e in shared if crowded(e, cores)]
    free = [e for e in evidence if not crowded(e, cores)]
    base, per_sample, unknown = _by_batch(free or crowds, speeds)
    found: float | None = float(cores) if shared else None
    if not free:
        # As if they had shared what the machine has.
        alone = cores / fmean(e.workers for e in crowds)
        base, per_sample = base * alone, per_sample * alone
    elif crowds:
        takes = [base + per_sample * (e.batch or 0) for e in crowds]
        found = fmean(e.workers * t / _mean(e, speeds) for e, t in zip(crowds, takes, strict=True))
    sizes = [e.batch for e in evidence if e.batch]
    return ComputingFit(base, per_sample, speeds, found, int(median(sizes)) if sizes else None, unknown)


def _by_batch(evidence: Sequence[Evidence], speeds: Mapping[int, float]) -> tuple[float, float, tuple[str, ...]]:
    """Seconds of a batch, whatever its size, and of a sample on top of it; and what cannot be told."""
    means = [_mean(e, speeds) for e in evidence]
    sizes = {e.batch for e in evidence}
    if None in sizes or len(sizes) < 2:
        only = next(iter(sizes))
        what = "the size of batches is not known" if only is None else f"all batches are of {only} samples"
        return fmean(means), 0.0, (f"compute per batch size: {what}",)
    base, per_sample = nonnegative([(1.0, float(e.batch or 0)) for e in evidence], means)
    return float(base), float(per_sample), ()


def _mean(e: Evidence, speeds: Mapping[int, float]) -> float:
    """Of one usual batch, as if all workers were as fast as the usual one."""
    return fmean(float(np.mean(s.usual)) * speeds.get(s.worker, 1.0) for s in e.series if len(s.usual))


def _speeds(evidence: Sequence[Evidence]) -> dict[int, float]:
    """Those of workers that differ clearly from the others, beyond chance, in every run that they are in."""
    found: dict[int, list[tuple[float, bool]]] = {}
    for e in evidence:
        usual = {s.worker: s.usual for s in e.series if len(s.usual) > 1}
        if len(usual) < 2:
            continue
        typical = median(float(np.mean(times)) for times in usual.values())
        for worker, times in usual.items():
            mean, error = float(np.mean(times)), float(np.std(times)) / sqrt(len(times))
            clear = abs(mean - typical) > _ERRORS * error and not typical / _APART <= mean <= typical * _APART
            found.setdefault(worker, []).append((typical / mean, clear))
    return {
        worker: fmean(ratio for ratio, _ in ratios)
        for worker, ratios in sorted(found.items())
        if all(clear for _, clear in ratios) and len({ratio > 1 for ratio, _ in ratios}) == 1
    }
