"""Results as one small table a recipe: one row a cell, variant and seed. The package carries those of our own runs.

They are committed so that pages and verdicts can be written, and checked, without a single run.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from offbeat.core.errors import StoreError
from offbeat.folders.description import Count, Name, Number, Seconds
from offbeat.folders.parquet import read_results
from offbeat.folders.writing import make_folder
from offbeat.lab.papers.expansion import Placed
from offbeat.lab.papers.reading import Reading
from offbeat.lab.papers.recipe import VERSIONS, Recipe
from offbeat.lab.papers.recipe import recipe as recipe_called
from offbeat.lab.runs.folder import Folder, metrics_table
from offbeat.lab.studies.study import ended

Row = Mapping[str, Any]


class _Result(Struct, forbid_unknown_fields=True, kw_only=True):
    """A row, besides the cell's place on the axes."""

    size: Name
    variant: Name
    seed: Count
    value: Number | None
    status: Literal["done", "diverged", "stalled", "failed", "interrupted", "not run"]
    epochs: Number | None = None
    staleness: Number | None = None
    wall_seconds: Seconds | None
    run: Name | None
    ended: Name | None = None
    offbeat: Name | None = None
    torch: Name | None = None
    python: Name | None = None
    cpu: Name | None = None


def value_of(recipe: Recipe, outcome: Mapping[str, Any], reading: Reading) -> float | None:
    """The number that is held against the paper's; a run that did not converge counts as chance, as it does there."""
    if outcome["status"] not in ("done", "diverged"):
        return None
    if recipe.chance is not None and (outcome["status"] == "diverged" or outcome.get("stalled")):
        return recipe.chance
    if outcome["status"] == "diverged":
        return None
    found = outcome.get("measured") if recipe.clock else reading.of(outcome)
    return None if found is None or not isfinite(found) else recipe.scale * float(found)


def rows_of(recipe: Recipe, size: str, placed: Sequence[Placed]) -> list[dict[str, Any]]:
    """A row for each cell that has come to an end, good or bad, or has failed."""
    out = []
    for p in placed:
        outcome = p.run.outcome
        if outcome is None:
            continue
        about = _about(recipe, p) if ended(p.run) else {}
        out.append(
            {
                "size": size,
                "variant": p.variant,
                **dict(zip(recipe.axes, p.point, strict=True)),
                "seed": p.seed,
                "value": value_of(recipe, outcome, p.reading),
                "status": "stalled" if outcome.get("stalled") and outcome["status"] == "done" else outcome["status"],
                "epochs": outcome.get("epochs"),
                "staleness": outcome.get("mean_staleness"),
                "wall_seconds": outcome.get("wall_seconds"),
                "run": p.run.address or "",
                **about,
            }
        )
    return out


def _about(recipe: Recipe, p: Placed) -> dict[str, str]:
    """When it ended, and under which versions, on which type of processor."""
    if recipe.clock:
        return {name: str((p.run.outcome or {}).get(name, "")) for name in ("ended", *VERSIONS)}
    info = Folder(p.run.folder).read()
    return {"ended": info.ended or "", **{name: info.versions.get(name, "") for name in VERSIONS}}


def save(recipe: Recipe, rows: Sequence[Row], path: Path) -> Path:
    """Writes the table; rows of other sizes, variants, cells and seeds that it holds already stay."""
    names = ("size", "variant", *recipe.axes, "seed")
    every = {tuple(row[n] for n in names): row for row in [*saved(recipe, path), *rows]}
    make_folder(path.parent)
    Folder(path.parent).write_table(path.name, metrics_table(list(every.values())))
    return path


def saved(recipe: Recipe, path: Path) -> list[dict[str, Any]]:
    """The rows of a table that `save` wrote; nothing where there is none."""
    try:
        return _read(recipe, path)
    except FileNotFoundError:
        return []


def stored(name: str) -> list[dict[str, Any]]:
    """What the package carries of a recipe; nothing where it has not been run."""
    place = files("offbeat.recipes").joinpath("results", f"{name}.parquet")
    if not place.is_file():
        return []
    with as_file(place) as path:
        return _read(recipe_called(name), path)


def _read(of: Recipe, path: Path) -> list[dict[str, Any]]:
    """All rows, of known columns and types."""
    found: list[dict[str, Any]] = read_results(path.parent, path.name).to_pylist()
    try:
        for row in found:
            _check(of, row)
    except msgspec.ValidationError as e:
        raise StoreError(f"{path} is no table of results of {of.name}: {e}") from None
    return found


def _check(of: Recipe, row: Row) -> None:
    msgspec.convert({k: v for k, v in row.items() if k not in of.axes}, _Result)
    for axis in of.axes:
        if not isinstance(row.get(axis), str):
            raise msgspec.ValidationError(f"it has no text for the axis {axis!r}")
    for name, value in row.items():
        if isinstance(value, float) and not isfinite(value):
            raise msgspec.ValidationError(f"{name} is not finite")
