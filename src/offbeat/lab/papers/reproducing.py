"""`offbeat.reproduce`: a table or figure of a paper, run and held against what was published."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from offbeat.core.errors import ConfigError, unknown
from offbeat.data.datasets import cache_dir, status
from offbeat.folders.opening import refuse_link
from offbeat.lab.papers.beside import Beside, beside
from offbeat.lab.papers.clock_cells import run_clock
from offbeat.lab.papers.deciding import Decision, decide
from offbeat.lab.papers.expansion import Placed, expand, parse_cells, reduced
from offbeat.lab.papers.recipe import Recipe, recipe
from offbeat.lab.papers.stored import rows_of, save
from offbeat.lab.studies.dry_run import DryRun
from offbeat.lab.studies.places import Where
from offbeat.lab.studies.study import HERE, Study

if TYPE_CHECKING:
    from offbeat.report.pages.page import Page


@dataclass(frozen=True)
class Reproduction(Study):
    """A recipe's runs: `decisions` are the verdicts on its claims, `beside` has ours next to the published numbers."""

    recipe: Recipe = field(kw_only=True)
    size: str = field(kw_only=True)
    placed: Sequence[Placed] = field(kw_only=True)
    """Every cell of the table, by variant and seed, with the run behind it; several may share one."""
    seeds: int = field(default=0, kw_only=True)

    @property
    def reduced(self) -> str:
        """What is smaller than in the paper, in words."""
        return reduced(self.recipe, self.size, self.seeds) if self.recipe.runs else ""

    @property
    def results(self) -> list[dict[str, Any]]:
        """A row for each cell, variant and seed that has come to an end."""
        return rows_of(self.recipe, self.size, self.placed)

    @cached_property
    def decisions(self) -> list[Decision]:
        """The verdicts, computed."""
        found = self.results
        return [decide(self.recipe, claim, found) for claim in self.recipe.claims]

    @cached_property
    def beside(self) -> Beside:
        """Ours beside the published numbers, in the variant that is compared with the paper."""
        return beside(self.recipe, self.results)

    def would_run(self, where: Where = HERE) -> DryRun:
        """As of any study; of the clock alone, and of a paper's numbers alone, there is nothing to estimate."""
        if self.cells and not self.recipe.clock:
            return super().would_run(where)
        takes = "seconds for each cell: the clock alone" if self.cells else "none: the paper's numbers alone"
        facts = {"cells": len(self.cells), "keys": ", ".join(self.keys), "wall_time": takes}
        return DryRun({**facts, "disk": "a page and a small table", "folder": str(self.folder)})

    def _run_cells(self, where: Where, again: bool, on_change: Callable[[], None]) -> bool:
        return run_clock(self.cells, on_change) if self.recipe.clock else super()._run_cells(where, again, on_change)

    def own_file(self, name: str) -> Path:
        """As of any study; the folder of the recipe, too, is no link."""
        refuse_link(self.folder.parent)
        return super().own_file(name)

    def save(self, path: str | Path) -> Path:
        """Writes the results as one small table; rows of other sizes, variants, cells and seeds in it stay.

        A landscape goes beside it.
        """
        from offbeat.lab.papers.landscapes import keep_landscape, landscape_of

        if (place := landscape_of(self)) is not None:
            keep_landscape(place, Path(path))
        return save(self.recipe, self.results, Path(path))

    def report(self, path: str | Path | None = None, **options: Any) -> "Page":
        """The page: published and ours side by side, verdicts, what differs."""
        from offbeat.lab.papers.showing import page

        made = page(self)
        if path is not None:
            made.save(path)
        return made

    def __repr__(self) -> str:
        return "\n".join(f"{d.verdict}: {d.claim.quote}" for d in self.decisions)


class ReproduceWords(TypedDict, total=False):
    """The words of `reproduce`, by keyword."""

    size: str
    cell: str
    variants: Sequence[str] | None
    seeds: int | None
    out: str | Path
    processes: int | None
    on: str
    address: str | None
    cpus: float | None
    again: bool
    progress: bool | None


@overload
def reproduce(name: str, *, dry_run: Literal[False] = False, **words: Unpack[ReproduceWords]) -> Reproduction: ...
@overload
def reproduce(name: str, *, dry_run: Literal[True], **words: Unpack[ReproduceWords]) -> DryRun: ...
def reproduce(
    name: str,
    *,
    size: str = "quick",
    cell: str = "",
    variants: Sequence[str] | None = None,
    seeds: int | None = None,
    out: str | Path = "reproductions",
    processes: int | None = None,
    on: str = "here",
    address: str | None = None,
    cpus: float | None = None,
    again: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Reproduction | DryRun:
    """Runs a table or figure of a paper and holds it against the published numbers; `offbeat reproduce` is the same.

    What is done is not run again; Ctrl-C saves what there is and raises KeyboardInterrupt, and the same call goes on.

    Args:
        name: of the recipe; `offbeat reproduce` lists them.
        size: `"quick"` (minutes, and says what it leaves out), `"full"` (the paper's own budget), or another one that
            the recipe has.
        cell: some cells alone: `"workers=5,delay=30ms"`.
        variants: which readings of what the paper leaves open; those of the size unless given.
        seeds: how many, those of the size unless given.
        out: the folder of all reproductions; runs that two of them share are run once.
        processes: runs side by side, all cores unless given.
        on, address, cpus: where runs are computed, as in `offbeat.sweep`.
        again: run anew what is finished.
        dry_run: run and write nothing; return what would run, with disk and time.
        progress: whether progress is shown; in a notebook and on a terminal unless given.
    """
    where = Where(on, processes, address, cpus)
    made = plan(name, size=size, cell=cell, variants=variants, seeds=seeds, out=out)
    if dry_run:
        return made.would_run(where)
    if made.cells:
        made.run_in_python(name, where, again, progress)
    return made


def plan(
    name: str,
    *,
    size: str = "quick",
    cell: str = "",
    variants: Sequence[str] | None = None,
    seeds: int | None = None,
    out: str | Path = "reproductions",
) -> Reproduction:
    """The same before anything has run; everything is checked."""
    found = recipe(name)
    folder = Path(out) / name / size
    where = parse_cells(found, cell)
    if not found.runs:
        return Reproduction([], list(found.axes), folder, recipe=found, size="", placed=[])
    if size not in found.sizes:
        raise unknown(f"size of {name}", size, found.sizes)
    chosen = list(variants) if variants else found.sizes[size].variants or list(found.variants)
    for variant in chosen:
        if variant not in found.variants:
            raise unknown(f"variant of {name}", variant, found.variants)
    count = found.sizes[size].seeds if seeds is None else seeds
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"seeds must be a number from 1, got {count!r}")
    _check_data(found)
    placed, cells = expand(found, size, chosen, count, where, Path(out))
    return Reproduction(cells, ["variant", *found.axes], folder, recipe=found, size=size, placed=placed, seeds=count)


def _check_data(found: Recipe) -> None:
    """A dataset that is missing is one line, before anything is computed."""
    here = {s.name for s in status(cache_dir()) if s.present}
    missing = [d for d in found.data if d not in here]
    if missing:
        raise ConfigError(f"{found.name} needs {' and '.join(missing)}; run: offbeat data get {' '.join(missing)}")
