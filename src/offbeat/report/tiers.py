"""Who is first, who is level with the first, and who is behind by how much: the decision behind a verdict's words.

Groups are compared over the seeds that all of them have, pair by pair, with intervals that hold together at 95%
(`intervals.py` says how, and what they assume). Times are compared as ratios (of geometric means over the seeds, from
differences of logarithms), scores as differences.

- The **leader** has the best mean of those that have a value for every seed.
- **Behind** is who is told apart from the leader: the interval leaves out "no difference".
- **Level** with the leader is who is not behind, and is told apart from everybody who is.
- **Undecided** is who is told apart neither from the leader nor from somebody behind. A leader with such company is
  not called first.
- Where nobody is behind, nobody is level either: too few seeds look the same as no difference.

Whoever is truly first is called behind at most 1 time in 40: one of its k - 1 intervals would have to lie wholly on the
wrong side, which each does with a probability of at most 0.05 / k(k - 1).

A run that ended before it reached the target stands for a time that is at least as long. A group that has such runs can
be behind ("at least 1.5 times as long"), but neither first nor level. A group with a run that diverged or failed is
left out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log

import numpy as np

from offbeat.folders.run_files import RunFiles
from offbeat.report.groups import Group
from offbeat.report.intervals import Interval, pairs_of

Value = Callable[[RunFiles], float | None]


@dataclass(frozen=True)
class Measure:
    """What is compared.

    name: as in "is first in ...".
    value: a run's number, None where it has none.
    higher: whether more is better.
    unit: written behind the numbers (default: none).
    ratio: compare as "1.8 times as long" instead of "0.3 lower"; values are then positive (default: no).
    bound: what a run without a value would at least have had (default: such a run is left out with its group).
    """

    name: str
    value: Value
    higher: bool
    unit: str = ""
    ratio: bool = False
    bound: Value | None = None

    def cost(self, value: float) -> float:
        """On the scale on which groups are compared; less is better."""
        return log(value) if self.ratio else -value if self.higher else value


@dataclass(frozen=True)
class Contestant:
    """A group, with a number for each seed."""

    group: Group
    values: Mapping[int, float]
    missed: int = 0
    """For how many seeds it is only a bound."""

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))


@dataclass(frozen=True)
class Gap:
    """By how much a group is worse than the leader: a factor or a difference, and its interval."""

    entry: Contestant
    size: float
    low: float
    high: float


@dataclass(frozen=True)
class Tiers:
    """Everybody's place. Gaps are in order of size."""

    leader: Contestant | None
    """None where no group has a value for every seed."""
    level: Sequence[Contestant]
    behind: Sequence[Gap]
    undecided: Sequence[Gap]
    left_out: Sequence[Group]
    seeds: int
    """How many all groups share."""


def tiers_of(groups: Sequence[Group], measure: Measure) -> Tiers:
    """The tiers of some groups in one measure."""
    found = [(g, _entry(g, measure)) for g in groups]
    entries = [e for _, e in found if e is not None]
    left_out = [g for g, e in found if e is None]
    seeds = sorted(set.intersection(*(set(e.values) for e in entries))) if entries else []
    if not seeds:
        best = min((e for e in entries if not e.missed), key=lambda e: measure.cost(e.mean), default=None)
        open_ = [Gap(e, 0.0, -inf, inf) for e in entries if e is not best]
        return Tiers(best, (), (), open_, left_out, 0)
    costs = np.array([[measure.cost(e.values[s]) for s in seeds] for e in entries])
    pairs = pairs_of(costs, np.array([e.missed > 0 for e in entries]))
    ranked = sorted(range(len(entries)), key=lambda i: float(pairs.means[i]))
    complete = [i for i in ranked if not entries[i].missed]
    if not complete:
        return Tiers(None, (), (), [Gap(e, 0.0, -inf, inf) for e in entries], left_out, len(seeds))
    leader, *others = complete
    behind = [i for i in ranked if pairs.above(i, leader)]
    level = [i for i in others if behind and all(pairs.above(b, i) for b in behind)]
    gaps = {i: _gap(entries[i], pairs.between(i, leader), measure) for i in ranked if i != leader}
    return Tiers(
        leader=entries[leader],
        level=[entries[i] for i in level],
        behind=[gaps[i] for i in behind],
        undecided=[gap for i, gap in gaps.items() if i not in behind and i not in level],
        left_out=left_out,
        seeds=len(seeds),
    )


def _entry(group: Group, measure: Measure) -> Contestant | None:
    """None for a group that cannot be compared: a run was not done, or has neither value nor bound."""
    values: dict[int, float] = {}
    missed = 0
    for run in group.runs:
        value = measure.value(run)
        if value is None and measure.bound is not None:
            value = measure.bound(run)
            missed += 1
        if run.status != "done" or value is None or not isfinite(value) or (measure.ratio and value <= 0):
            return None
        values[run.seed] = value
    return Contestant(group, values, missed)


def _gap(entry: Contestant, found: Interval, measure: Measure) -> Gap:
    ends = (found.estimate, found.low, found.high)
    size, low, high = ((inf if v == inf else exp(v)) if measure.ratio else v for v in ends)
    return Gap(entry, size, low, high)
