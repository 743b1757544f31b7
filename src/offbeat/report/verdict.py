"""Who is better, in words that the numbers support: `tiers.py` decides, this file says it."""

from collections.abc import Sequence
from dataclasses import dataclass

from offbeat.core.budget import HIGHER_IS_BETTER, Target
from offbeat.report.groups import Group, clocks
from offbeat.report.numbers import listed, metric_name, number
from offbeat.report.targets import looked_for, time_to
from offbeat.report.tiers import Gap, Measure, Tiers, tiers_of

_MOST_NAMED = 5
"""So many are spelled out in one sentence; the page's table has all of them."""


@dataclass(frozen=True)
class Verdict:
    """The sentences, and the tiers that they put into words."""

    sentences: Sequence[str]
    tiers: Tiers

    @property
    def winner(self) -> Group | None:
        """Who is told apart from everybody else, and better; None where there is nobody of whom that can be said."""
        found = self.tiers
        shared = found.level or found.undecided or not found.behind
        return None if found.leader is None or shared else found.leader.group


def verdict(groups: Sequence[Group], goal: Target | None, given: bool) -> list[str]:
    """The time to the target first, if one was set; then what they ended with."""
    if len(groups) < 2:
        return []
    found: list[Verdict] = []
    out: list[str] = []
    if goal is not None and given:
        clock = clocks(groups)
        if len(clock) > 1:
            out.append("Times are not compared: some are virtual, some are wall time.")
        else:
            found.append(judge(groups, _time(goal, clock[0])))
    score = final_score(groups)
    if score is not None:
        name = f"final {metric_name(score)}"
        found.append(judge(groups, Measure(name, lambda r: r.summary.get(score), HIGHER_IS_BETTER[score])))
    out += [sentence for v in found for sentence in v.sentences]
    if any(v.tiers.behind or v.tiers.undecided for v in found) and any(v.tiers.seeds > 1 for v in found):
        out.append("Compared seed by seed; the intervals of a comparison hold together with 95% confidence.")
    return list(dict.fromkeys(out))


def _time(goal: Target, clock: str) -> Measure:
    """The time to a target; a run that missed it would have needed longer than it was given."""
    return Measure(
        f"{clock} time to {goal}",
        lambda r: time_to(r, goal),
        higher=False,
        unit=" s",
        ratio=True,
        bound=lambda r: looked_for(r, goal),
    )


def final_score(groups: Sequence[Group]) -> str | None:
    """The score that all groups ended with: accuracy, else loss."""
    for name in ("accuracy", "loss"):
        if all(any(v is not None for v in g.values(name)) for g in groups):
            return name
    return None


def judge(groups: Sequence[Group], measure: Measure) -> Verdict:
    """The verdict on some groups in one measure. The first sentence says who is first, or that nobody can be named."""
    found = tiers_of(groups, measure)
    return Verdict([*_placed(found, measure), *_left_out(found.left_out)], found)


def _placed(found: Tiers, measure: Measure) -> list[str]:
    leader, name = found.leader, measure.name
    if leader is None:
        missed = [_missed(gap) for gap in found.undecided]
        told = f": {_short(missed)}" if missed else ""
        return [f"No winner in {name}: no group has a value for every seed{told}."]
    best = f"{leader.group.name} has the best mean ({_shown(leader.mean, measure)})"
    if all(gap.entry.missed for gap in found.undecided) and not found.behind:
        told = f": {_short([_missed(gap) for gap in found.undecided])}" if found.undecided else ""
        mean = _shown(leader.mean, measure)
        return [f"Only {leader.group.name} has a value for every seed in {name} ({mean}){told}."]
    if found.seeds < 2:
        why = "one seed each gives no interval" if found.seeds else "the groups have no seed in common"
        return [f"No winner in {name}: {best}, but {why}."]
    if not found.behind:
        if all(gap.entry.values == leader.values for gap in found.undecided):
            everybody = [leader.group.name, *(gap.entry.group.name for gap in found.undecided)]
            return [f"No winner in {name}: {_short(everybody)} are equal in every seed."]
        return [f"No winner in {name}: {best}, but nobody is told apart from it: {_gaps(found.undecided, measure)}."]
    first = [leader, *found.level]
    who, means = _short([e.group.name for e in first]), _short([_shown(e.mean, measure) for e in first])
    late = _gaps(found.behind, measure, leader.group.name if found.level else "")
    if not found.undecided:
        return [f"{who} {'are level' if found.level else 'is first'} in {name} ({means}): {late}."]
    are = "are level" if found.level else "has the best mean"  # which is less than to be first
    undecided = _gaps(found.undecided, measure, leader.group.name)
    return [f"{who} {are} in {name} ({means}): {late}.", f"Undecided: {undecided}."]


def _gaps(gaps: Sequence[Gap], measure: Measure, than: str = "") -> str:
    """ "sync needs 1.80 times as long [1.60 to 2.00] and plain 2.10 times [1.90 to 2.40]"."""
    told = [_gap(gap, measure, than, first=n == 0) for n, gap in enumerate(gaps)]
    return _short(told, "more likewise")


def _gap(gap: Gap, measure: Measure, than: str, *, first: bool) -> str:
    """The first of several says what is measured and against whom, the others say it shorter."""
    name = gap.entry.group.name
    if measure.ratio:
        long = "" if not first else f" as long as {than}" if than else " as long"
        if gap.entry.missed:
            known = f" and needs at least {_factor(gap.low)} times{long}" if gap.low > 1 else ""
            return _missed(gap) + known
        needs = "needs " if first else ""
        return f"{name} {needs}{_factor(gap.size)} times{long} [{_factor(gap.low)} to {_factor(gap.high)}]"
    worse = "lower" if measure.higher else "higher"
    worse = f"{worse} than {than}" if than and first else worse
    size, low, high = (f"{'−' if v < 0 else ''}{_shown(abs(v), measure)}" for v in (gap.size, gap.low, gap.high))
    return f"{name} {'is ' if first else ''}{size} {worse if first else ''}".rstrip() + f" [{low} to {high}]"


def _missed(gap: Gap) -> str:
    return f"{gap.entry.group.name} missed it in {gap.entry.missed} of {len(gap.entry.values)} seeds"


def _left_out(groups: Sequence[Group]) -> list[str]:
    parts = []
    for g in groups:
        bad = [r.status for r in g.runs if r.status != "done"]
        why = f"{len(bad)} of {len(g.runs)} {' or '.join(sorted(set(bad)))}" if bad else "no value for every seed"
        parts.append(f"{g.name} ({why})")
    return [f"Left out: {_short(parts)}."] if parts else []


def _shown(value: float, measure: Measure) -> str:
    return f"{number(value, 3)}{measure.unit}"


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.3g}"


def _short(names: Sequence[str], more: str = "more") -> str:
    if len(names) > _MOST_NAMED:
        names = [*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} {more}"]
    return listed(names)
