"""Results as one small table a recipe: one row a cell, variant and seed. The package carries those of our own runs.

They are committed so that pages and verdicts can be written, and checked, without a single run.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from offbeat.core.errors import StoreError
from offbeat.folders.parquet import read_results
from offbeat.lab.papers.expansion import Placed
from offbeat.lab.papers.recipe import Recipe
from offbeat.lab.runs.folder import Folder, metrics_table
from offbeat.lab.studies.study import ended

Row = Mapping[str, Any]
_VERSIONS = ("offbeat", "torch", "python", "cpu")


def value_of(recipe: Recipe, outcome: Mapping[str, Any]) -> float | None:
    """The number that is held against the paper's; a run that did not converge counts as chance, as it does there."""
    if outcome["status"] not in ("done", "diverged"):
        return None
    found = outcome.get("measured" if recipe.clock else recipe.metric)
    if recipe.chance is not None and (outcome["status"] == "diverged" or outcome.get("stalled")):
        return recipe.chance
    return None if found is None or outcome["status"] == "diverged" else recipe.scale * float(found)


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
                "value": value_of(recipe, outcome),
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
        return {name: str((p.run.outcome or {}).get(name, "")) for name in ("ended", *_VERSIONS)}
    info = Folder(p.run.folder).read()
    return {"ended": info.ended or "", **{name: info.versions.get(name, "") for name in _VERSIONS}}


def save(rows: Sequence[Row], path: Path) -> Path:
    """Writes the table; rows of other sizes, variants, cells and seeds that it holds already stay."""
    before = _read(path) if path.exists() else []
    every = list({_place(row): row for row in [*before, *rows]}.values())
    Folder(path.parent).write_table(path.name, metrics_table(every))
    return path


def _place(row: Row) -> tuple[Any, ...]:
    """What tells one row from another: its size, variant, cell and seed, which come before its value."""
    return tuple(row.values())[: list(row).index("value")]


def stored(name: str) -> list[dict[str, Any]]:
    """What the package carries of a recipe; nothing where it has not been run."""
    place = files("offbeat.recipes").joinpath("results", f"{name}.parquet")
    if not place.is_file():
        return []
    with as_file(place) as path:
        return _read(path)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = read_results(path.parent, path.name).to_pylist()
    except FileNotFoundError:
        raise StoreError(f"{path} is not there") from None
    return found
