"""The statistics by which claims are decided: each a function of a table of numbers, the paper's or ours.

The same function sees the published cells and those of one seed of ours, so that a claim can be held against the
paper's own table, too. What it needs is named in the claim; `cells_of` lists the cells.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt

from offbeat.lab.papers.recipe import Claim, Point, Recipe, Where

Values = Mapping[Point, float]
_WITHIN = ("share-best", "gap-to-best")
"""Statistics whose `against` are some of the cells of `of`, and not their partners."""


def matches(axes: Sequence[str], point: Point, where: Where) -> bool:
    """Whether a cell is one of those."""
    by_name = dict(zip(axes, point, strict=True))
    return all(by_name[a] in ([v] if isinstance(v, str) else v) for a, v in where.items())


def cells_of(axes: Sequence[str], points: Iterable[Point], claim: Claim) -> list[Point]:
    """The cells that a claim speaks of."""
    every = list(points)
    found = {p for p in every if any(matches(axes, p, w) for w in [w for _, w in claim.terms] or [claim.of])}
    if not claim.terms and claim.statistic not in _WITHIN:
        found |= {_other(axes, p, claim) for p in found}
    return [p for p in every if p in found]


class Cells:
    """A table of numbers with what the statistics ask of it."""

    def __init__(self, recipe: Recipe, axes: Sequence[str], values: Values, claim: Claim) -> None:
        self.recipe, self.axes, self.claim = recipe, list(axes), claim
        self.values = dict(values)
        if claim.chance == "left out":
            self.values = {p: v for p, v in self.values.items() if not self.at_chance(v)}

    def at_chance(self, value: float) -> bool:
        return self.recipe.chance is not None and value <= 1.05 * self.recipe.chance

    def where(self, where: Where) -> dict[Point, float]:
        return {p: v for p, v in self.values.items() if matches(self.axes, p, where)}

    def pairs(self) -> list[tuple[float, float]]:
        """Cells of `of`, each with the one that differs from it as `against` says."""
        found = []
        for point, value in self.where(self.claim.of).items():
            other = _other(self.axes, point, self.claim)
            if other in self.values:
                found.append((value, self.values[other]))
        return found

    def lines(self, along: str) -> list[dict[str, float]]:
        """The numbers along one axis, for each choice of the others."""
        at = self.axes.index(along)
        out: dict[Point, dict[str, float]] = {}
        for point, value in self.where(self.claim.of).items():
            out.setdefault(point[:at] + point[at + 1 :], {})[point[at]] = value
        return list(out.values())


def _other(axes: Sequence[str], point: Point, claim: Claim) -> Point:
    """The cell that a cell of `of` is paired with."""
    return tuple(_partner(claim, a, v) for a, v in zip(axes, point, strict=True))


def _partner(claim: Claim, axis: str, value: str) -> str:
    """Where both sides name several values of an axis, the first belongs to the first, and so on."""
    theirs = claim.against.get(axis, value)
    return theirs if isinstance(theirs, str) else theirs[list(claim.of[axis]).index(value)]


def mean(cells: Cells) -> float | None:
    return _mean(list(cells.where(cells.claim.of).values()))


def highest(cells: Cells) -> float | None:
    return max(cells.where(cells.claim.of).values(), default=None)


def span(cells: Cells) -> float | None:
    """The highest less the lowest."""
    found = cells.where(cells.claim.of).values()
    return max(found) - min(found) if found else None


def contrast(cells: Cells) -> float | None:
    """The weighted sum of the means of some groups."""
    total = 0.0
    for weight, where in cells.claim.terms:
        middle = _mean(list(cells.where(where).values()))
        if middle is None:
            return None
        total += weight * middle
    return total


def contrast_of_best(cells: Cells) -> float | None:
    """The same of the best cell of each group, in place of its mean."""
    best = max if cells.recipe.higher else min
    total = 0.0
    for weight, where in cells.claim.terms:
        found = cells.where(where)
        if not found:
            return None
        total += weight * best(found.values())
    return total


def difference(cells: Cells) -> float | None:
    """The mean of a - b over pairs."""
    return _mean([a - b for a, b in cells.pairs()])


def difference_spread(cells: Cells) -> float | None:
    """The standard deviation of a - b over pairs."""
    found = [a - b for a, b in cells.pairs()]
    middle = _mean(found)
    if middle is None or len(found) < 2:
        return None
    return sqrt(sum((d - middle) ** 2 for d in found) / (len(found) - 1))


def gain_where_better(cells: Cells) -> float | None:
    """The mean of (a - b) / b in percent, over the pairs in which a is above b."""
    return _mean([100 * (a - b) / b for a, b in cells.pairs() if a > b])


def ratio(cells: Cells) -> float | None:
    """The mean of a / b over pairs."""
    return _mean([a / b for a, b in cells.pairs() if b])


def share_at_chance(cells: Cells) -> float | None:
    return _mean([float(cells.at_chance(v)) for v in cells.where(cells.claim.of).values()])


def share_best(cells: Cells) -> float | None:
    """In what share of the lines along an axis the value that `against` names is the best."""
    (wanted,) = (v for a, v in cells.claim.against.items() if a == cells.claim.along)
    lines = [line for line in cells.lines(cells.claim.along) if wanted in line and len(line) > 1]
    best = max if cells.recipe.higher else min
    return _mean([float(line[str(wanted)] == best(line.values())) for line in lines])


def gap_to_best(cells: Cells) -> float | None:
    """How far the best of `against` is below the best of `of`, in the mean over the values of the axis `along`."""
    gaps = []
    at = cells.axes.index(cells.claim.along)
    everybody, some = cells.where(cells.claim.of), cells.where(cells.claim.against)
    for value in cells.recipe.axes[cells.claim.along]:
        mine = [v for p, v in some.items() if p[at] == value]
        every = [v for p, v in everybody.items() if p[at] == value]
        if mine and every:
            gaps.append(max(every) - max(mine))
    return _mean(gaps)


def limit_rank(cells: Cells) -> float | None:
    """Rank correlation of the axis `over` with the largest value of `along` at which the threshold is reached."""
    over, along = cells.claim.over, cells.claim.along
    at, number = cells.axes.index(over), cells.axes.index(along)
    xs, ys = [], []
    lines: dict[tuple[Point, str], list[float]] = {}
    for p, v in cells.where(cells.claim.of).items():
        rest = tuple(c for i, c in enumerate(p) if i not in (at, number))
        reached = lines.setdefault((rest, p[at]), [])
        if v >= cells.claim.threshold:
            reached.append(float(p[number]))
    for (_, value), reached in lines.items():
        xs.append(float(value))
        ys.append(max(reached, default=0.0))
    return spearman(xs, ys)


def rank_terms(cells: Cells) -> float | None:
    """Rank correlation, over the values of the axis `along`, of the first term with the sum of the others."""
    at = cells.axes.index(cells.claim.along)
    xs, ys = [], []
    for value in cells.recipe.axes[cells.claim.along]:
        found = [
            (weight, _mean([v for p, v in cells.where(where).items() if p[at] == value]))
            for weight, where in cells.claim.terms
        ]
        if all(middle is not None for _, middle in found):
            x, *others = [weight * (middle or 0.0) for weight, middle in found]
            xs.append(x)
            ys.append(sum(others))
    return spearman(xs, ys)


def rank_along(cells: Cells) -> float | None:
    """Rank correlation of the numbers with the axis `along`."""
    at = cells.axes.index(cells.claim.along)
    found = cells.where(cells.claim.of)
    return spearman([float(p[at]) for p in found], list(found.values()))


STATISTICS: Mapping[str, Callable[[Cells], float | None]] = {
    "mean": mean,
    "highest": highest,
    "span": span,
    "contrast": contrast,
    "contrast-of-best": contrast_of_best,
    "difference": difference,
    "difference-spread": difference_spread,
    "gain-where-better": gain_where_better,
    "ratio": ratio,
    "share-at-chance": share_at_chance,
    "share-best": share_best,
    "gap-to-best": gap_to_best,
    "limit-rank": limit_rank,
    "rank-terms": rank_terms,
    "rank-along": rank_along,
}


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties sharing their ranks; None where one side does not vary."""
    from scipy.stats import rankdata

    if len(xs) < 2 or len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    a, b = rankdata(xs), rankdata(ys)
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / sqrt(float((a * a).sum() * (b * b).sum())))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
