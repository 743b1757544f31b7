"""The one table of figures: which page shows which, in what section and in what order.

A new figure is a file of this folder with a function that is marked, and nothing else:

    @of_one("Staleness", 30, needs="gap")
    def gap(view: FigureView) -> Chart | None:
        ...

puts it on the page of one run, third in its section, and makes it `run.plot.gap()` in a notebook. `@of_several` puts a
figure on the page of several runs. A figure without anything to show is None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pkgutil import iter_modules

from offbeat.core.budget import HIGHER_IS_BETTER, Target
from offbeat.core.errors import unknown
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Chart
from offbeat.report.groups import Group
from offbeat.report.numbers import known, mean
from offbeat.report.verdict import final_score

MOST_LINES, MOST_BARS = 10, 24
"""More lines in one figure cannot be told apart, more bars not be read."""

OF_ONE = ("Learning", "Staleness", "Workers", "Classes and data")
OF_SEVERAL = ("Learning", "Time", "Staleness and norms")
"""The sections of the two pages that show figures."""

Drawn = Chart | Sequence[Chart] | None


@dataclass(frozen=True)
class FigureView:
    """What figures are made from.

    groups: the groups of runs; of one run, the group that it is alone.
    goal: the target that curves and times are held against (default: none).
    """

    groups: Sequence[Group]
    goal: Target | None = None

    @property
    def group(self) -> Group:
        return self.groups[0]

    @property
    def run(self) -> RunFiles:
        return self.group.runs[0]

    @cached_property
    def lines(self) -> Sequence[Group]:
        """As many groups as lines can be told apart: the best by final score, in their own order."""
        groups = self.groups
        some = (n for n in ("accuracy", "loss") if any(known(g.values(n)) for g in groups))
        score = final_score(groups) or next(some, None)
        if len(groups) <= MOST_LINES or score is None:
            return groups[:MOST_LINES]
        sign = -1.0 if HIGHER_IS_BETTER[score] else 1.0
        done = [(sign * (mean(g.values(score)) or 0.0), g) for g in groups if all(r.status == "done" for r in g.runs)]
        chosen = {id(g) for _, g in sorted(done, key=lambda pair: pair[0])[:MOST_LINES]}
        return [g for g in groups if id(g) in chosen] or groups[:MOST_LINES]

    @property
    def bars(self) -> Sequence[Group]:
        """As many groups as bars can be read."""
        return self.groups[:MOST_BARS]

    def target(self, metric: str) -> float | None:
        """The value that a metric should reach."""
        return self.goal.value if self.goal is not None and self.goal.metric == metric else None


@dataclass(frozen=True)
class FigurePlace:
    """A figure's place: its section, and its number among the figures there."""

    section: str
    place: int
    draw: Callable[[FigureView], Drawn]
    needs: str
    """What a run that does not have this figure lacks, in a word or two."""


_ONE: dict[str, FigurePlace] = {}
_SEVERAL: dict[str, FigurePlace] = {}
Mark = Callable[[Callable[[FigureView], Drawn]], Callable[[FigureView], Drawn]]


def of_one(section: str, place: int, *, needs: str = "") -> Mark:
    """Marks a figure of one run; a notebook finds it by the function's name.

    section: one of `OF_ONE`.
    place: figures of a section come in this order.
    needs: what a run without this figure lacks (default: the function's name).
    """
    if section not in OF_ONE:
        raise unknown("section", section, OF_ONE)
    return _into(_ONE, section, place, needs)


def of_several(section: str, place: int) -> Mark:
    """Marks a figure of several runs; `section` is one of `OF_SEVERAL`."""
    if section not in OF_SEVERAL:
        raise unknown("section", section, OF_SEVERAL)
    return _into(_SEVERAL, section, place, "")


def _into(table: dict[str, FigurePlace], section: str, place: int, needs: str) -> Mark:
    def mark(draw: Callable[[FigureView], Drawn]) -> Callable[[FigureView], Drawn]:
        name = draw.__name__
        if name in table:
            raise ValueError(f"two figures are called {name}")
        if any((e.section, e.place) == (section, place) for e in table.values()):
            raise ValueError(f"{name} is not the only figure {place} of {section}")
        table[name] = FigurePlace(section, place, draw, needs or name.replace("_", " "))
        return draw

    return mark


@cache
def _load() -> None:
    """Every file of this folder, so that all figures are in the tables."""
    package = import_module("offbeat.report.figures")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")


def figures_of_one() -> dict[str, FigurePlace]:
    """Figures of one run, by name."""
    _load()
    return _ONE


def figures_of_several() -> dict[str, FigurePlace]:
    """Figures of several runs, by name."""
    _load()
    return _SEVERAL


def charts(table: dict[str, FigurePlace], section: str, view: FigureView) -> list[Chart]:
    """What a section shows, in order."""
    out: list[Chart] = []
    for entry in sorted((e for e in table.values() if e.section == section), key=lambda e: e.place):
        drawn = entry.draw(view)
        out += [] if drawn is None else [drawn] if isinstance(drawn, Chart) else drawn
    return out
