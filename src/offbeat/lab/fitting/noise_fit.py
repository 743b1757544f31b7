"""How much the time of a batch varies, and whether a slow batch is followed by another: noise and its memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from offbeat.lab.fitting.evidence import Evidence, Floats, Series

LAGS = 30
_REMEMBERS = 0.2  # autocorrelation of neighbours from which on slowness has a memory
_SLOWER = 1.25  # factor of a slow spell
_CLEAR = 0.5  # share of the variance that two states must explain
_SPELLS = 5
_MOST_SLOW = 0.5  # share of the time


@dataclass(frozen=True)
class FittedSpells:
    """A worker is slow now and then: so many times as slow, for so long, after so long without."""

    factor: float
    slow_seconds: float
    usual_seconds: float
    explained: float
    """The share of the variance of log times that is between the two states."""

    def autocorrelation(self, seconds: float) -> float:
        """Of log times so many seconds apart, as the two states make it."""
        return self.explained * float(np.exp(-seconds * (1 / self.slow_seconds + 1 / self.usual_seconds)))


@dataclass(frozen=True)
class NoiseFit:
    """The times of a batch around their mean, within one run of one worker."""

    spread: float
    """Standard deviation over mean, within one state."""
    autocorrelation: Floats
    """Of log times, at lags 1, 2, ..."""
    bound: float
    """Independent times stay below it, in 95 cases of 100."""
    spells: FittedSpells | None
    between: float
    """Standard deviation, over mean, of equal runs; 0 where there are none."""


def fit_noise(evidence: Sequence[Evidence], equal: Sequence[Evidence] | None = None) -> NoiseFit:
    """`equal`: among which equal runs are looked for; the same unless given."""
    series = [s for e in evidence for s in e.series if len(s.usual) > 2]
    acf, bound = autocorrelation(series)
    spells = None
    if len(acf) and acf[0] > max(_REMEMBERS, bound):
        spells = find_spells(series)
    ratios = np.concatenate([s.usual / s.usual.mean() for s in series]) if series else np.ones(1)
    spread = float(ratios.std())
    if spells is not None:
        logs = np.concatenate([np.log(s.usual) - np.log(s.usual).mean() for s in series])
        spread = float(np.sqrt(np.expm1(logs.var() * (1 - spells.explained))))
    return NoiseFit(spread, acf, bound, spells, between_equal_runs(evidence if equal is None else equal))


def autocorrelation(series: Sequence[Series], lags: int = LAGS) -> tuple[Floats, float]:
    """Of the logarithms of the times, pooled over workers; and what independent times stay below."""
    products, counts, squares, total = np.zeros(lags), np.zeros(lags), 0.0, 0
    for s in series:
        x = np.log(np.maximum(s.usual, 1e-12))
        x = x - x.mean()
        squares += float(x @ x)
        total += len(x)
        for k in range(1, min(lags, len(x) - 1) + 1):
            products[k - 1] += float(x[k:] @ x[:-k])
            counts[k - 1] += len(x) - k
    if not squares or total < 2:
        return np.zeros(0), 1.0
    known = counts > 0
    found = products[known] / counts[known] / (squares / total)
    return np.asarray(found), float(2 / np.sqrt(total))


def find_spells(series: Sequence[Series]) -> FittedSpells | None:
    """Two states, by the threshold that parts the smoothed log times best (Otsu's); None where they are not clear."""
    slow_runs: list[float] = []
    usual_runs: list[float] = []
    logs, states = [], []
    for s in series:
        if len(s.seconds) < 10:
            continue
        x = np.log(np.maximum(s.seconds / np.median(s.seconds), 1e-12))
        logs.append(x)
        states.append(smoothed(x))
    if not logs:
        return None
    cut = threshold(np.concatenate(states))
    whole, slow = np.concatenate(logs), np.concatenate(states) > cut
    share = float(slow.mean())
    if not 0 < share <= _MOST_SLOW:
        return None
    factor = float(np.exp(np.median(whole[slow]) - np.median(whole[~slow])))
    explained = float(share * (1 - share) * (whole[slow].mean() - whole[~slow].mean()) ** 2 / whole.var())
    at = 0
    for s in (s for s in series if len(s.seconds) >= 10):
        mine = slow[at : at + len(s.seconds)]
        at += len(mine)
        ends = np.flatnonzero(np.diff(mine)) + 1
        for first, last in pairwise(ends):  # whole spells only
            lasted = float(s.started[last] - s.started[first])
            (slow_runs if mine[first] else usual_runs).append(lasted)
    if factor < _SLOWER or explained < _CLEAR or len(slow_runs) < _SPELLS or not usual_runs:
        return None
    return FittedSpells(factor, float(np.mean(slow_runs)), float(np.mean(usual_runs)), explained)


def smoothed(x: Floats) -> Floats:
    """The median of each value and its two neighbours: one slow batch is noise, not a spell."""
    padded = np.concatenate([x[:1], x, x[-1:]])
    return np.asarray(np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0))


def threshold(x: Floats) -> float:
    """The cut that leaves the least variance within the two sides."""
    values = np.sort(x)
    n = np.arange(1, len(values))
    below = np.cumsum(values)[:-1]
    between = (below / n - (values.sum() - below) / (len(values) - n)) ** 2 * n * (len(values) - n)
    k = int(between.argmax())
    return float((values[k] + values[k + 1]) / 2)


def between_equal_runs(evidence: Sequence[Evidence]) -> float:
    """How much the mean times of runs that should be equal differ: their standard deviation over their mean."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for e in evidence:
        key = (e.kind, e.solver, e.model, e.workers, e.batch)
        groups.setdefault(key, []).append(float(np.mean([s.usual.mean() for s in e.series if len(s.usual)])))
    squares = [(v / np.mean(g) - 1) ** 2 for g in groups.values() if len(g) > 1 for v in g]
    freedom = sum(len(g) - 1 for g in groups.values() if len(g) > 1)
    return float(np.sqrt(sum(squares) / freedom)) if freedom else 0.0
