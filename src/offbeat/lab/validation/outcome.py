"""What is compared of a run, real or simulated."""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from msgspec import Struct

from offbeat.core.budget import Target
from offbeat.core.errors import StoreError
from offbeat.folders.run_files import RunFiles
from offbeat.lab.studies.timing import Timed

MOST_STALE = 64


class Outcome(Struct):
    """One run."""

    rate: float
    """Samples a second."""
    staleness: list[float]
    """Shares of the gradients by staleness; empty where the rule has no versions."""
    waiting: float
    """Share of the workers' time in which they neither compute nor sleep a delay."""
    to_target: float | None = None
    """Seconds to the target; None where it was missed or not looked for."""


def of_real(run: RunFiles, target: str) -> Outcome:
    s = run.summary
    reached = Target.parse(target).time(run.metrics().to_pylist())
    if (rate := s["samples_per_second"]) is None:
        raise StoreError(f"{run.path} does not say how many samples a second it had")
    return Outcome(rate, _shares(run.trace()), _waiting(s), reached)


def of_timed(found: Timed) -> Outcome:
    s = found.summary
    return Outcome(s["samples_per_virtual_second"] or 0.0, _shares(found.trace), _waiting(s))


def _waiting(s: dict[str, Any]) -> float:
    return 1.0 - (s["computing_share"] or 0.0) - (s["delayed_share"] or 0.0)


def _shares(trace: Any) -> list[float]:
    """Up to a staleness that is counted together with all beyond it."""
    taus = trace.filter(trace["applied"])["staleness"].drop_null().to_numpy()
    if not len(taus):
        return []
    counts = np.bincount(np.clip(taus, 0, MOST_STALE).astype(np.int64))
    return [float(c) for c in np.round(counts / counts.sum(), 6)]


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """Total variation distance of two distributions: the share of gradients that would have to be moved."""
    size = max(len(one), len(other))
    a, b = (np.pad(np.asarray(v, np.float64), (0, size - len(v))) for v in (one, other))
    return float(np.abs(a - b).sum() / 2)


def mean(runs: Sequence[Outcome]) -> Outcome:
    """Of equal runs; a target that one has missed is missed."""
    size = max(len(r.staleness) for r in runs)
    shares = np.mean([np.pad(r.staleness, (0, size - len(r.staleness))) for r in runs], axis=0) if size else []
    times = [r.to_target for r in runs]
    reached = None if None in times else float(np.mean([t for t in times if t is not None]))
    return Outcome(
        float(np.mean([r.rate for r in runs])),
        [float(v) for v in shares],
        float(np.mean([r.waiting for r in runs])),
        reached,
    )


def log_ratio(would: float | None, was: float | None) -> float | None:
    return log(would / was) if would and was else None
