"""The simulated half of a validation: a fit to one half of the cases, a prediction of the other, and its intervals.

**The intervals** are those of a prediction: each case of the fitted half is left out in turn, fitted to the others and
predicted. The root mean square of these errors (of logarithms, for rates and times) is what a prediction is off by, and
Student's quantile with as many degrees of freedom as cases makes 90% of it. What the machine does from run to run is in
these errors already.
"""

from collections.abc import Sequence
from math import exp, sqrt
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import Cluster
from offbeat.folders.description import Name, Number, Workers
from offbeat.lab.config import make
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.calibrate import Calibration, fit, machine
from offbeat.lab.studies.timing import rule_of, simulate
from offbeat.lab.validation.cases import TARGET, Half, RealCase
from offbeat.lab.validation.measuring import CaseRuns, Say
from offbeat.lab.validation.outcome import Outcome, apart, log_ratio, mean, of_timed

LEVEL = 0.9
_SEEDS = 5  # of the clock alone, which takes no time


class Prediction(Struct):
    """One number of one case: real and predicted, the noise between equal real runs, and an interval."""

    case: Name
    half: Half
    workers: Workers
    what: Literal["throughput", "staleness", "waiting", "time to target"]
    real: Number | None
    predicted: Number | None
    noise: Number | None
    """Between two equal real runs: relative for throughput and times, else absolute."""
    low: Number | None = None
    high: Number | None = None

    @property
    def error(self) -> float | None:
        """Relative, of throughput and times; absolute, of shares. Of staleness it is the distance itself."""
        if self.real is None or self.predicted is None:
            return None
        if self.what in ("throughput", "time to target"):
            return self.predicted / self.real - 1 if self.real else None
        return self.predicted - self.real

    @property
    def inside(self) -> bool | None:
        if self.low is None or self.high is None or self.real is None:
            return None
        return self.low <= self.real <= self.high


def compare(measured: Sequence[CaseRuns], seconds: float, say: Say, *, training: bool = True) -> list[Prediction]:
    """Every case of the second half, predicted from the first; without `training`, no time to a target."""
    known = [m for m in measured if m.case.half == "fit"]
    asked = [m for m in measured if m.case.half == "predict"]
    check_fitted([m.case for m in known])
    rate_off, waiting_off = _left_out(known, seconds, say)
    found: list[Prediction] = []
    fits = {(c.place, c.trained): calibrated_for(known, c) for c in (m.case for m in asked)}
    for m in asked:
        say(f"predicting {m.case.name}")
        calibrated = fits[m.case.place, m.case.trained]
        if calibrated is None:
            continue
        would, times = forecast(calibrated, m, seconds), []
        if training:
            times = [_time_to_target(calibrated, m, seconds, seed) for seed in range(len(m.outcomes))]
        found += _rows(m, would, times, rate_off, waiting_off)
    return found


def check_fitted(cases: Sequence[RealCase]) -> None:
    if not any(case.half == "fit" for case in cases):
        raise ConfigError("a validation needs cases to fit to: see --only")


def calibrated_for(known: Sequence[CaseRuns], case: RealCase) -> Calibration | None:
    """A fit to runs in the case's place whose compute times are of its model; None where no run of it is known."""
    there = [m for m in known if m.case.place == case.place]
    mine = [e for m in there if m.case.trained == case.trained for e in m.evidence]
    others = [e for m in there if m.case.trained != case.trained for e in m.evidence]
    return fit([*mine, *others]) if mine else None


def forecast(found: Calibration, m: CaseRuns, seconds: float) -> Outcome:
    """By the clock alone, over some seeds."""
    cluster, evidence = _cluster(found, m), m.evidence[0]
    rule = rule_of(m.case.solver, {})
    runs = [
        simulate(cluster, rule, seconds=seconds, nbytes=evidence.nbytes, batch=m.case.batch, seed=seed)
        for seed in range(_SEEDS)
    ]
    return mean([of_timed(run) for run in runs])


def _cluster(found: Calibration, m: CaseRuns) -> Cluster:
    theirs = Cluster.parse(workers=m.workers, delay=list(m.case.delay))
    return machine(found.computing, found.noise, found.exchanges, found.crowd.sharing, theirs)


def _time_to_target(found: Calibration, m: CaseRuns, seconds: float, seed: int) -> float | None:
    """Trained on the fitted cluster, in virtual time."""
    values: dict[str, Any] = m.case.values(1, seconds, seed, "sim")
    run = execute(build(make({**values, "cluster": _cluster(found, m).to_dict()})), None)
    return Target.parse(TARGET).time(run.metrics.to_pylist())


def _left_out(known: Sequence[CaseRuns], seconds: float, say: Say) -> tuple[list[float], list[float]]:
    """Each case left out in turn and predicted from the others: errors of log rates, and of waiting shares."""
    rates, waits = [], []
    for m in known:
        say(f"leaving out {m.case.name}")
        calibrated = calibrated_for([k for k in known if k is not m], m.case)
        if calibrated is None:
            continue
        would, was = forecast(calibrated, m, seconds), mean(m.outcomes)
        off = log_ratio(would.rate, was.rate)
        if off is not None:
            rates.append(off)
            waits.append(would.waiting - was.waiting)
    return rates, waits


def half_width(errors: Sequence[float], level: float = LEVEL) -> float | None:
    """Student's quantile times the root mean square; None for fewer than two errors."""
    if len(errors) < 2:
        return None
    from scipy.special import stdtrit

    return float(stdtrit(len(errors), (1 + level) / 2)) * sqrt(float(np.mean(np.square(errors))))


def _rows(
    m: CaseRuns, would: Outcome, times: Sequence[float | None], rates: Sequence[float], waits: Sequence[float]
) -> list[Prediction]:
    was = mean(m.outcomes)
    name = (m.case.name, m.case.half, m.workers)
    wide, share = half_width(rates), half_width(waits)
    rows = [
        Prediction(*name, "throughput", was.rate, would.rate, _relative([o.rate for o in m.outcomes])),
        Prediction(*name, "waiting", was.waiting, would.waiting, _spread([o.waiting for o in m.outcomes])),
    ]
    if wide is not None:
        rows[0].low, rows[0].high = would.rate * exp(-wide), would.rate * exp(wide)
    if share is not None:
        rows[1].low, rows[1].high = max(0.0, would.waiting - share), min(1.0, would.waiting + share)
    if was.staleness:
        pairs = [apart(a.staleness, b.staleness) for k, a in enumerate(m.outcomes) for b in m.outcomes[:k]]
        noise = float(np.mean(pairs)) if pairs else None
        rows.append(Prediction(*name, "staleness", 0.0, apart(was.staleness, would.staleness), noise))
    if times:
        reached = [t for t in times if t is not None]
        predicted = float(np.mean(reached)) if len(reached) == len(times) else None
        real = [o.to_target for o in m.outcomes if o.to_target is not None]
        rows.append(Prediction(*name, "time to target", was.to_target, predicted, _relative(real)))
        if predicted is not None and wide is not None:
            seeds = np.log(reached).std(ddof=1) if len(reached) > 1 else 0.0
            both = sqrt(wide**2 + (1.645 * float(seeds)) ** 2)
            rows[-1].low, rows[-1].high = predicted * exp(-both), predicted * exp(both)
    return rows


def _relative(values: Sequence[float]) -> float | None:
    """Standard deviation over mean."""
    spread = _spread(values)
    return None if spread is None else spread / (float(np.mean(values)) or 1.0)


def _spread(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
