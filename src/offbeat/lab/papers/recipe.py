"""A recipe: one table or figure of a paper as data. Its set-up, its cells, the published numbers, and its claims.

The files are `offbeat/recipes/*.toml`; docs/reproduce.md says how one is written. Everything in them is checked when
they are read, and a test reads all of them.
"""

import tomllib
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, Literal

import msgspec
from msgspec import Struct

from offbeat.core.errors import ConfigError, unknown

Point = tuple[str, ...]
"""A cell of the table: a value of each axis, in the order of the axes."""
Where = dict[str, str | list[str]]
"""Cells by their values on some axes."""
VERSIONS = ("offbeat", "torch", "python", "cpu")
RESERVED = {
    "size",
    "variant",
    "seed",
    "value",
    "status",
    "epochs",
    "staleness",
    "wall_seconds",
    "run",
    "ended",
    *VERSIONS,
}
"""Columns of the results beside the axes (`stored.py`)."""


class Variant(Struct, frozen=True, forbid_unknown_fields=True):
    """One reading of what the paper leaves open, or does otherwise than it says."""

    about: str
    set: dict[str, Any] = {}
    axes: dict[str, dict[str, dict[str, Any]]] = {}
    """Settings of some values of some axes, in place of the recipe's own."""


class Size(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of it is run: `full` is the paper's own budget, the others are reduced."""

    seeds: int = 3
    set: dict[str, Any] = {}
    axes: dict[str, dict[str, dict[str, Any]]] = {}
    """Settings of some values of some axes besides their own: what is reduced otherwise in each cell."""
    keep: dict[str, list[str]] = {}
    variants: list[str] = []
    """All of them unless given."""
    grid: int = 0
    """Points a side of the loss landscape that is drawn around its runs; 0: none is."""


class Published(Struct, frozen=True, forbid_unknown_fields=True):
    """The paper's numbers, row by row. An axis that is neither in rows nor in columns was tuned: its best counts."""

    rows: list[str]
    columns: list[str]
    values: list[list[float | str]]


class Lines(Struct, frozen=True, forbid_unknown_fields=True):
    """How the paper draws its numbers: as lines along one axis, which is alone in the rows or in the columns."""

    along: str
    log: list[Literal["x", "y"]] = []


class Claim(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the paper says, and the rule that decides it: a statistic of cells, and where it has to lie."""

    key: str
    quote: str
    place: str
    rule: str
    """The statistic in words, for people; `statistic` and what follows is the same for the program."""
    statistic: str
    of: Where = {}
    against: Where = {}
    terms: list[tuple[float, Where]] = []
    along: str = ""
    over: str = ""
    threshold: float = 0.0
    chance: Literal["counted", "left out"] = "counted"
    at_least: float | None = None
    at_most: float | None = None
    equals: float | None = None
    tolerance: float = 0.0
    own_tolerance: float = 0.0
    """Of the paper's own table, from which the number was computed: its rounding."""
    seeds: int = 3
    note: str = ""

    def bounds(self, *, own: bool = False) -> tuple[float, float]:
        """Where the statistic has to lie."""
        slack = self.own_tolerance if own else self.tolerance
        if self.equals is not None:
            return self.equals - slack, self.equals + slack
        low = float("-inf") if self.at_least is None else self.at_least - slack
        return low, float("inf") if self.at_most is None else self.at_most + slack


class Recipe(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table or figure."""

    name: str
    paper: str
    place: str
    title: str
    axes: dict[str, dict[str, dict[str, Any]]]
    published: Published
    lines: Lines | None = None
    clock: bool = False
    """Whether its cells are of the clock alone (`clock_cells.py`); they are trained else."""
    metric: str = "accuracy"
    label: str = "accuracy"
    unit: str = "%"
    scale: float = 100.0
    """The published numbers are so many times ours."""
    higher: bool = True
    chance: float | None = None
    """What a run that did not converge counts as."""
    base: dict[str, Any] = {}
    variants: dict[str, Variant] = {}
    sizes: dict[str, Size] = {}
    data: list[str] = []
    differs: list[str] = []
    notes: list[str] = []
    claims: list[Claim] = []

    @property
    def runs(self) -> bool:
        """Whether there is anything to run; else its claims are decided from the paper's own numbers alone."""
        return bool(self.base)

    @property
    def main(self) -> str:
        """The variant that is compared with the paper: the first."""
        return next(iter(self.variants), "")

    @property
    def shown(self) -> list[str]:
        """The axes of the printed table, rows first."""
        return [*self.published.rows, *self.published.columns]

    @property
    def tuned(self) -> list[str]:
        """Axes over which the paper gives the best alone."""
        return [a for a in self.axes if a not in self.shown]

    def points(self, axes: list[str] | None = None) -> list[Point]:
        """All cells, the last axis fastest."""
        return list(product(*(self.axes[a] for a in (self.axes if axes is None else axes))))

    def at(self, shown: Point) -> Point:
        """A cell of the printed table in the order of the axes, where none was tuned."""
        by_name = dict(zip(self.shown, shown, strict=True))
        return tuple(by_name[a] for a in self.axes)

    def printed(self) -> dict[Point, float]:
        """The paper's numbers, by cell of the printed table in the order of its axes; what is illegible is left out."""
        cells = self.points(self.shown)
        values = [v for row in self.published.values for v in row]
        out = {}
        for cell, value in zip(cells, values, strict=True):
            if value == "NC":
                assert self.chance is not None
                out[cell] = self.chance
            elif isinstance(value, float):
                out[cell] = value
        return out


def names() -> list[str]:
    """The recipes that there are."""
    return sorted(f.name.removesuffix(".toml") for f in files("offbeat.recipes").iterdir() if f.name.endswith(".toml"))


@cache
def recipe(name: str) -> Recipe:
    """By name; an unknown one lists those that are known."""
    if name not in names():
        raise unknown("recipe", name, names())
    text = files("offbeat.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Recipe:
    """A recipe from TOML; what is wrong with it in one line."""
    try:
        found = msgspec.convert({"name": name, **tomllib.loads(text)}, Recipe)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as e:
        raise ConfigError(f"recipe {name}: {e}") from None
    _check(found)
    return found


def _check(r: Recipe) -> None:
    def refuse(why: str) -> ConfigError:
        return ConfigError(f"recipe {r.name}: {why}")

    for axis in RESERVED & r.axes.keys():
        raise refuse(f"an axis cannot be called {axis!r}, as a column of the results is")
    for axis in r.shown:
        if axis not in r.axes:
            raise refuse(f"no axis {axis!r}; there are {', '.join(r.axes)}")
    height, width = len(r.points(r.published.rows)), len(r.points(r.published.columns))
    if [len(row) for row in r.published.values] != [width] * height:
        raise refuse(f"published.values must be {height} rows of {width} numbers")
    for value in (v for row in r.published.values for v in row):
        if isinstance(value, str) and value not in ("NC", ""):
            raise refuse(f"a published value must be a number, 'NC' or '' (illegible), got {value!r}")
        if value == "NC" and r.chance is None:
            raise refuse("it has cells without convergence and no chance")
    printed = r.published
    if r.lines is not None and r.lines.along != printed.rows[-1] and [r.lines.along] != printed.columns:
        raise refuse(f"lines run along the last axis of the rows or the only one of the columns, got {r.lines.along!r}")
    if r.runs and not (r.variants and {"quick", "full"} <= set(r.sizes)):
        raise refuse("what is run needs a variant, and the sizes quick and full")
    for where in (w for c in r.claims for w in (c.of, c.against, *(t for _, t in c.terms))):
        _check_where(r, where)
    for size in r.sizes.values():
        _check_where(r, dict(size.keep))
    for axes in (*(v.axes for v in r.variants.values()), *(s.axes for s in r.sizes.values())):
        _check_where(r, {axis: list(values) for axis, values in axes.items()})
    if len({c.key for c in r.claims}) < len(r.claims):
        raise refuse("two claims have one key")


def _check_where(r: Recipe, where: Where) -> None:
    for axis, values in where.items():
        if axis not in r.axes:
            raise unknown(f"axis of {r.name}", axis, r.axes)
        for value in [values] if isinstance(values, str) else values:
            if value not in r.axes[axis]:
                raise unknown(f"{axis} of {r.name}", value, r.axes[axis])
