"""Who is better, in words that the numbers support.

Seeds are paired: the same seed has the same data order and the same initial weights in every group, so differences are
taken seed by seed. Their mean gets a bootstrap interval; no winner is named when it spans zero. Where the best of k
groups is held against the k - 1 others, each interval has level 1 - 0.05 / (k - 1), so that all hold together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from offbeat.report.groups import Group
from offbeat.report.numbers import known, number
from offbeat.report.read import RunFiles

LEVEL = 0.95
_DRAWS = 20_000
_FEW = 6
"""With fewer pairs, chance alone gives all differences the same sign more often than 1 time in 20: 2 / 2^n."""

Value = Callable[[RunFiles], float | None]


@dataclass(frozen=True)
class Measure:
    """What is compared."""

    name: str
    """As in "is best in ..."."""
    value: Value
    higher: bool
    ahead: str = "ahead of"
    """As in "0.3 s sooner than sync"."""
    unit: str = ""
    missing: str = "without a value"

    def show(self, value: float) -> str:
        return f"{'−' if value < 0 else ''}{number(abs(value), 3)}{self.unit}"


@dataclass(frozen=True)
class Difference:
    """By how much the best leads another, as a mean over paired seeds; no interval for a single pair."""

    other: Group
    mean: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def spans_zero(self) -> bool:
        return self.low is None or self.high is None or self.low <= 0 <= self.high


@dataclass(frozen=True)
class Verdict:
    """The sentences, and the winner they name, if any."""

    sentences: Sequence[str]
    winner: Group | None = None
    differences: Sequence[Difference] = ()


def bootstrap(differences: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of the mean, resampled with fixed random numbers: the same runs, the same words."""
    values = np.asarray(differences, float)
    draws = np.random.default_rng(0).integers(0, len(values), (_DRAWS, len(values)))
    means = values[draws].mean(1)
    low, high = np.quantile(means, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def paired(a: Group, b: Group, value: Value) -> list[float]:
    """a - b, seed by seed, over the seeds that both have."""
    theirs = {r.seed: value(r) for r in b.runs}
    found = []
    for run in a.runs:
        mine, other = value(run), theirs.get(run.seed)
        if mine is not None and other is not None and np.isfinite(mine) and np.isfinite(other):
            found.append(mine - other)
    return found


def judge(groups: Sequence[Group], measure: Measure) -> Verdict:
    """The best group held against each other."""
    bad = {id(g): sum(_missing(measure, r) for r in g.runs) for g in groups}
    contenders = [g for g in groups if not bad[id(g)]]
    aside = _left_out([(g, bad[id(g)]) for g in groups if bad[id(g)]], measure)
    if not contenders:
        return Verdict([f"No winner in {measure.name}: no group has a value for every seed.", *aside])
    means = {id(g): float(np.mean([measure.value(r) or 0.0 for r in g.runs])) for g in contenders}
    ranked = sorted(contenders, key=lambda g: means[id(g)], reverse=measure.higher)
    best, others = ranked[0], ranked[1:]
    if not others:
        text = f"Only {best.name} has a value for every seed in {measure.name}: {measure.show(means[id(best)])}."
        return Verdict([text, *aside])
    differences = [_difference(best, other, measure, len(others)) for other in others]
    shown = f"{best.name} has {'the best' if len(others) > 1 else 'the better'} mean ({measure.show(means[id(best)])})"
    unpaired = [d.other.name for d in differences if d.pairs == 0]
    if unpaired:
        text = f"No winner in {measure.name}: {shown}, but shares no seed with {_listed(unpaired)}."
        return Verdict([text, *aside], None, differences)
    pairs = min(d.pairs for d in differences)
    if pairs == 1:
        text = f"No winner in {measure.name}: {shown}, but one seed each gives no interval."
        return Verdict([text, *aside], None, differences)
    ties = [d for d in differences if d.spans_zero]
    said = _spelled(ties or differences, measure)
    if ties:
        spans = "the interval spans" if len(ties) == 1 else "the intervals span"
        text = f"No winner in {measure.name}: {shown}, {said}, but {spans} zero."
        return Verdict([text, *aside], None, differences)
    text = f"{best.name} is best in {measure.name}: {measure.show(means[id(best)])} on average, {said}."
    return Verdict([text, *_few(pairs), *aside], best, differences)


def _missing(measure: Measure, run: RunFiles) -> bool:
    value = measure.value(run)
    return run.status != "done" or value is None or not np.isfinite(value)


def _difference(best: Group, other: Group, measure: Measure, against: int) -> Difference:
    sign = 1.0 if measure.higher else -1.0
    found = [sign * v for v in known(paired(best, other, measure.value))]
    if len(found) < 2:
        return Difference(other, found[0] if found else 0.0, None, None, len(found))
    low, high = bootstrap(found, 1 - (1 - LEVEL) / against)
    return Difference(other, float(np.mean(found)), low, high, len(found))


def _spelled(differences: Sequence[Difference], measure: Measure) -> str:
    parts = []
    for d in differences[:3]:
        assert d.low is not None
        assert d.high is not None
        low, high = measure.show(d.low), measure.show(d.high)
        parts.append(f"{measure.show(d.mean)} {measure.ahead} {d.other.name} [{low} to {high}]")
    if len(differences) > 3:
        parts.append(f"{len(differences) - 3} more likewise")
    return _listed(parts)


def _few(pairs: int) -> list[str]:
    if pairs >= _FEW:
        return []
    return [
        f"{pairs} paired seeds are few: by chance alone they would all agree 1 time in {2 ** (pairs - 1)}. "
        "More seeds make it firm."
    ]


def _left_out(broken: Sequence[tuple[Group, int]], measure: Measure) -> list[str]:
    if not broken:
        return []
    parts = []
    for g, bad in broken:
        statuses = {r.status for r in g.runs if r.status != "done"}
        why = " or ".join(sorted(statuses)) if statuses else measure.missing
        parts.append(f"{g.name} ({bad} of {len(g.runs)} {why})")
    if len(parts) > 4:
        parts = [*parts[:3], f"{len(parts) - 3} more"]
    return [f"Left out: {_listed(parts)}."]


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
