"""From a recipe to runs: every variant, cell and seed as a configuration. What comes to the same run is one cell."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError, unknown
from offbeat.lab.config import NONE
from offbeat.lab.papers.claim_rules import matches
from offbeat.lab.papers.clock_cells import clock_cell
from offbeat.lab.papers.deciding import kept
from offbeat.lab.papers.reading import READ, Reading, reading_of
from offbeat.lab.papers.recipe import Point, Recipe, Where
from offbeat.lab.runs.address import address
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.sweep import check_count, configured


@dataclass(frozen=True)
class Placed:
    """A cell of the paper's table, in one variant and with one seed, and the run behind it."""

    variant: str
    point: Point
    seed: int
    run: Cell
    reading: Reading
    """What is read of the run; several cells may read one."""


def expand(
    recipe: Recipe, size: str, variants: Sequence[str], seeds: int, where: Where, folder: Path
) -> tuple[list[Placed], list[Cell]]:
    """One seed of everything before the second, the paper's own variant before the others."""
    axes = list(recipe.axes)
    points = [p for p in kept(recipe, size) if matches(axes, p, where)]
    if not points:
        raise ConfigError(f"no cell of {recipe.name} at size {size} has {_said(where)}")
    check_count(len(points) * len(variants) * seeds)
    cells: dict[str, Cell] = {}
    placed = []
    tried: set[str] = set()
    for seed in range(seeds):
        for variant in variants:
            for point in points:
                keys = {"variant": variant, **dict(zip(axes, point, strict=True)), "seed": seed}
                found = settings(recipe, size, variant, point)
                made = clock_cell(recipe.base, found, seed, folder) if recipe.clock else None
                made = made or _trained(recipe, found, seed, folder, tried)
                made.keys.update(keys)
                run = cells.setdefault(made.folder.name, made)
                placed.append(Placed(variant, point, seed, run, reading(recipe, size, variant, point)))
    return placed, list(cells.values())


def settings(recipe: Recipe, size: str, variant: str, point: Point) -> dict[str, Any]:
    """What a cell changes of the base, by dotted key: its variant, its place on each axis, its size."""
    return {k: v for k, v in _said_of(recipe, size, variant, point).items() if not k.startswith(READ)}


def reading(recipe: Recipe, size: str, variant: str, point: Point) -> Reading:
    """What is read of the run of a cell: the recipe's metric, unless its place on an axis says otherwise."""
    return reading_of(recipe.name, {f"{READ}metric": recipe.metric, **_said_of(recipe, size, variant, point)})


def _said_of(recipe: Recipe, size: str, variant: str, point: Point) -> dict[str, Any]:
    """All that is said of a cell, of what is run and of what is read; the size has the last word."""
    chosen, reduced_to = recipe.variants[variant], recipe.sizes[size]
    found = dict(chosen.set)
    for axis, value in zip(recipe.axes, point, strict=True):
        found |= chosen.axes.get(axis, {}).get(value, recipe.axes[axis][value])
    found |= reduced_to.set
    for axis, value in zip(recipe.axes, point, strict=True):
        found |= reduced_to.axes.get(axis, {}).get(value, {})
    return found


def _trained(recipe: Recipe, found: Mapping[str, Any], seed: int, folder: Path, tried: set[str]) -> Cell:
    """One run of each kind is tried out: loading a dataset for every cell would take minutes."""
    kind = json.dumps({k: v for k, v in found.items() if not k.startswith(("cluster.", "optimizer.lr"))}, default=str)
    first = kind not in tried
    tried.add(kind)
    config = configured(deepcopy(recipe.base), {**found, "seed": seed}, NONE, tried=first)
    return Cell(config.plain(), folder / "cells" / config.hash, {}, address(config, NONE))


def parse_cells(recipe: Recipe, text: str) -> Where:
    """`workers=5,delay=30ms` as cells; a wrong name or value lists the right ones."""
    where: Where = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        axis, equals, value = (s.strip() for s in part.partition("="))
        if not equals:
            raise ConfigError(f"a cell is named like {_example(recipe)}, got {part!r}")
        if axis not in recipe.axes:
            raise unknown(f"axis of {recipe.name}", axis, recipe.axes)
        if value not in recipe.axes[axis]:
            raise unknown(f"{axis} of {recipe.name}", value, recipe.axes[axis])
        where[axis] = value
    return where


def reduced(recipe: Recipe, size: str, seeds: int) -> str:
    """What was reduced against the paper's own budget, in words; empty where nothing was."""
    chosen, full = recipe.sizes[size], recipe.sizes["full"]
    parts = []
    for key, value in chosen.set.items():
        usual = full.set.get(key, _base(recipe.base, key))
        if value != usual:
            parts.append(f"{key} {value}" + ("" if usual is None else f" instead of {usual}"))
    cellwise = {key: None for values in chosen.axes.values() for changed in values.values() for key in changed}
    if cellwise:
        parts.append(f"{', '.join(cellwise)} reduced cell by cell")
    some, every = len(kept(recipe, size)), len(kept(recipe, "full"))
    if some < every:
        parts.append(f"{some} of {every} cells")
    if seeds < full.seeds:
        parts.append(f"{seeds} seed{'s' if seeds > 1 else ''} instead of {full.seeds}")
    if chosen.variants and len(chosen.variants) < len(recipe.variants):
        parts.append(f"{len(chosen.variants)} of {len(recipe.variants)} variants")
    return ", ".join(parts)


def _base(values: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return None
        values = values[part]
    return values


def _said(where: Where) -> str:
    return ", ".join(f"{k}={v}" for k, v in where.items())


def _example(recipe: Recipe) -> str:
    return ",".join(f"{axis}={next(iter(values))}" for axis, values in recipe.axes.items())
