"""What becomes of a claim. The verdict is computed from cells, never typed.

The paper's own table is asked first: a claim that does not follow from the very numbers it speaks of is contradicted by
them, whatever our runs say (they are shown all the same). Then the statistic is taken of each seed of ours, and its
95% interval over the seeds (Student's) has to lie inside the bounds, or outside them. With fewer seeds than were fixed
beforehand nothing is decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any

import numpy as np

from offbeat.lab.papers.claim_rules import STATISTICS, Cells, Values, cells_of
from offbeat.lab.papers.recipe import Claim, Point, Recipe

REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided at this size"
CONTRADICTED, NOT_RUN, HOLDS = "contradicted by the paper's own table", "not run", "follows from the paper's own table"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, UNDECIDED, CONTRADICTED, HOLDS, NOT_RUN)
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Estimate:
    """A statistic over seeds."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def half(self) -> float:
        """Half the width of the 95% interval; infinite for one seed."""
        return half_width(float(np.std(self.values, ddof=1)), len(self.values)) if len(self.values) > 1 else inf

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


@dataclass(frozen=True)
class Decision:
    """The verdict on a claim, and all that it rests on."""

    verdict: str
    claim: Claim
    own: float | None = None
    """The statistic of the paper's own cells."""
    ours: Estimate | None = None
    size: str = ""
    variant: str = ""
    cells: str = ""
    """How many of the cells that it speaks of are there, where some are missing."""
    seeds_needed: int | None = None
    others: Mapping[str, Estimate] = field(default_factory=dict)
    """The other variants: what would flip it."""
    runs: Sequence[str] = ()


def half_width(std: float, n: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.975)) * std / sqrt(n)


def own_statistic(recipe: Recipe, claim: Claim) -> float | None:
    """The statistic of the published cells; None where the paper does not print them."""
    return STATISTICS[claim.statistic](Cells(recipe, recipe.shown, recipe.printed(), claim))


def estimate(recipe: Recipe, claim: Claim, by_seed: Mapping[int, Values], grid: Sequence[Point]) -> Estimate | None:
    """The statistic of each seed that has all the cells that the claim speaks of; None where no seed has."""
    axes = list(recipe.axes)
    needed = cells_of(axes, grid, claim)
    whole = [v for _, v in sorted(by_seed.items()) if needed and all(p in v for p in needed)]
    found = [STATISTICS[claim.statistic](Cells(recipe, recipe.shown, in_print(recipe, v), claim)) for v in whole]
    known = [v for v in found if v is not None]
    return Estimate(known) if known else None


def decide(recipe: Recipe, claim: Claim, rows: Sequence[Mapping[str, Any]]) -> Decision:
    """The verdict, from the paper's table and from rows of `stored.py`: those of the largest size that has any."""
    own = own_statistic(recipe, claim)
    low, high = claim.bounds(own=True)
    contradicted = own is not None and not low <= own <= high
    size = next((s for s in reversed(list(recipe.sizes)) if any(r["size"] == s for r in rows)), "")
    mine = [r for r in rows if r["size"] == size]
    grid = kept(recipe, size)
    found = {v: estimate(recipe, claim, values_of(recipe, mine, v), grid) for v in recipe.variants}
    ours = found.pop(recipe.main, None)
    needed = cells_of(list(recipe.axes), grid, claim)
    speaks_of = [r for r in mine if r["variant"] == recipe.main and point_of(recipe, r) in needed]
    there = max((len(v.keys() & set(needed)) for v in values_of(recipe, speaks_of, recipe.main).values()), default=0)
    return Decision(
        verdict=CONTRADICTED if contradicted else _verdict(recipe, claim, own, ours),
        claim=claim,
        own=own,
        ours=ours,
        size=size,
        variant=recipe.main if mine else "",
        cells="" if ours is not None or not recipe.runs else f"{there} of {len(needed)}",
        seeds_needed=None if ours is None else _needed(claim, ours),
        others={v: e for v, e in found.items() if e is not None},
        runs=sorted({str(r["run"]) for r in speaks_of if ours is not None}),
    )


def kept(recipe: Recipe, size: str) -> list[Point]:
    """The cells that are run at this size."""
    keep = recipe.sizes[size].keep if size else {}
    return [p for p in recipe.points() if all(v in keep.get(a, [v]) for a, v in zip(recipe.axes, p, strict=True))]


def in_print(recipe: Recipe, values: Values) -> dict[Point, float]:
    """As the paper prints them: by the axes of its table, the best over what was tuned."""
    out: dict[Point, float] = {}
    better = max if recipe.higher else min
    for point, value in values.items():
        by_name = dict(zip(recipe.axes, point, strict=True))
        cell = tuple(by_name[a] for a in recipe.shown)
        out[cell] = better(out.get(cell, value), value)
    return out


def point_of(recipe: Recipe, row: Mapping[str, Any]) -> Point:
    return tuple(str(row[a]) for a in recipe.axes)


def values_of(recipe: Recipe, rows: Sequence[Mapping[str, Any]], variant: str) -> dict[int, dict[Point, float]]:
    """The numbers of a variant, by seed."""
    out: dict[int, dict[Point, float]] = {}
    for row in rows:
        if row["variant"] == variant and row["value"] is not None:
            out.setdefault(int(row["seed"]), {})[point_of(recipe, row)] = float(row["value"])
    return out


def _verdict(recipe: Recipe, claim: Claim, own: float | None, ours: Estimate | None) -> str:
    if ours is None:
        return NOT_RUN if recipe.runs or own is None else HOLDS
    low, high = claim.bounds()
    if len(ours.values) < claim.seeds:
        return UNDECIDED
    if low <= ours.low and ours.high <= high:
        return REPRODUCED
    return NOT_REPRODUCED if ours.high < low or ours.low > high else UNDECIDED


def _needed(claim: Claim, ours: Estimate) -> int | None:
    """How many seeds would decide, if they scatter as these do; None where no number below a thousand would."""
    n = len(ours.values)
    if n < 2:  # how much they scatter is not known
        return None
    std = float(np.std(ours.values, ddof=1))
    room = min(abs(ours.mean - bound) for bound in claim.bounds())
    enough = (k for k in range(max(2, claim.seeds), MOST_SEEDS) if half_width(std, k) <= room)
    return next(enough, None)
