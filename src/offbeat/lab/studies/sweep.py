"""Sweeps: a grid or a list over any configuration keys, times seeds; one tidy table at the end.

task = "digits"
cluster.workers = 8

[sweep]
seeds = 3                       # 0, 1, 2; or a list
grid = { "solver.name" = ["sync", "asgd"], "optimizer.lr" = [0.01, 0.05] }
# or: list = [ { "solver.name" = "sync" }, { "solver.name" = "asgd", "optimizer.lr" = 0.01 } ]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError, StoreError, unknown
from offbeat.core.units import shown
from offbeat.lab.config import Config, combinations, make, put, read_toml
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.ready import try_out, try_target
from offbeat.lab.studies.cells import Cell, run_cells
from offbeat.report.numbers import mean

_SWEEP_KEYS = ("grid", "list", "seeds")
FINISHED = ("done", "diverged")
MOST = 100_000
"""Cells of a sweep; each is a folder."""


@dataclass(frozen=True)
class Sweep:
    """All cells of a sweep, each with its own complete configuration."""

    cells: Sequence[Cell]
    keys: Sequence[str]
    folder: Path


def read_sweep(path: Path, out: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Sweep:
    """The cells of a sweep file. Every configuration is checked before anything runs."""
    values = read_toml(path)
    section = values.pop("sweep", None)
    if not isinstance(section, dict):
        raise ConfigError(f"{path} has no [sweep] section with a grid or a list")
    for key in section:
        if key not in _SWEEP_KEYS:
            raise unknown("key", f"sweep.{key}", [f"sweep.{k}" for k in _SWEEP_KEYS])
    for key, value in (overrides or {}).items():
        put(values, key, value)
    return make_sweep(values, _cells(section, path), _seeds(section.get("seeds", 1)), out or Path("sweeps") / path.stem)


def make_sweep(
    base: Mapping[str, Any], points: Sequence[Mapping[str, Any]], seeds: Sequence[int], folder: Path
) -> Sweep:
    """Every point, with every seed, over the base configuration."""
    check_count(len(points) * len(seeds))
    cells: dict[str, Cell] = {}
    for point in points:
        for number, seed in enumerate(seeds):
            config = _configured(base, {**point, "seed": seed}, tried=number == 0)
            # Two points that come to the same run are one cell.
            cells.setdefault(config.hash, Cell(config.plain(), folder / "cells" / config.hash, {**point, "seed": seed}))
    keys = list(dict.fromkeys(key for point in points for key in point))
    return Sweep(list(cells.values()), keys, folder)


def check_count(cells: int) -> None:
    """Refuses more cells than anybody means."""
    if cells > MOST:
        raise ConfigError(f"a sweep or comparison has at most {MOST:,} cells, got {cells:,}")


def _configured(base: Mapping[str, Any], point: Mapping[str, Any], *, tried: bool) -> Config:
    """The configuration of a cell; one of each point is tried out, since a seed changes nothing about that."""
    from copy import deepcopy

    values = deepcopy(dict(base))
    for name in ("task", "solver", "optimizer"):
        if isinstance(values.get(name), str):
            values[name] = {"name": values[name]}
    for key, value in point.items():
        put(values, key, value)
    try:
        config = make(values)
        if tried:
            plan = build(config)
            try_out(plan)
            try_target(plan)
        return config
    except ConfigError as e:
        named = ", ".join(f"{k}={_short(v)}" for k, v in point.items())
        raise ConfigError(f"cell {named}: {e}") from None


def _short(value: Any) -> str:
    return shown(value) if not isinstance(value, str) or len(value) > 100 else value


def _cells(section: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    grid, points = section.get("grid"), section.get("list")
    if (grid is None) == (points is None):
        raise ConfigError(f"{path}: [sweep] needs a grid or a list, and not both")
    if grid is not None:
        if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()):
            raise ConfigError(f"{path}: sweep.grid must give a list of values for each key, got {grid!r}")
        check_count(prod(map(len, grid.values())))
        return combinations(grid)
    if not isinstance(points, list) or not points or not all(isinstance(p, dict) for p in points):
        raise ConfigError(f"{path}: sweep.list must be a list of tables of keys, got {points!r}")
    return points


def _seeds(value: Any) -> Sequence[int]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        check_count(value)
        return range(value)
    if isinstance(value, list) and value and all(isinstance(s, int) and not isinstance(s, bool) for s in value):
        return value
    raise ConfigError(f"sweep.seeds must be a number of seeds or a list of them, got {shown(value)}")


def make_folder(sweep: Sweep) -> None:
    """Before anything is computed: a folder that cannot be written is bad input, not a failure of every cell."""
    try:
        sweep.folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StoreError(f"cannot write to {sweep.folder}: {e.strerror}") from None


def collect_done(sweep: Sweep) -> int:
    """Takes the outcomes of cells that are finished already; how many there were."""
    from offbeat.lab.runs.address import address
    from offbeat.lab.runs.folder import Folder

    done = 0
    for cell in sweep.cells:
        folder = Folder(cell.folder)
        if not folder.exists():
            continue
        try:
            info = folder.read()
        except StoreError:
            continue  # damaged: it is run again
        # A run of another configuration is no outcome of this cell; running the cell will say so.
        if info.status in FINISHED and info.key == address(make(cell.config)):
            cell.outcome, cell.share = {**info.outcome, "run": str(cell.folder)}, 1.0
            done += 1
    return done


def run_sweep(sweep: Sweep, processes: int, *, on_change: Callable[[], None] = lambda: None) -> bool:
    """Runs what is not done and writes results.parquet; False when interrupted."""
    finished = run_cells(sweep.cells, processes, on_change=on_change)
    write_results(sweep)
    return finished


def rows(sweep: Sweep) -> list[dict[str, Any]]:
    """One row a cell: its keys, its seed, its outcome. Failed cells are rows too."""
    out = []
    for cell in sweep.cells:
        outcome = cell.outcome or {"status": "not run"}
        flat = {k: v for k, v in outcome.items() if not isinstance(v, list | dict)}
        out.append({**{k: cell.keys.get(k) for k in [*sweep.keys, "seed"]}, **flat, "folder": str(cell.folder)})
    return out


def best_rows(sweep: Sweep, most: int = 3) -> tuple[str, list[dict[str, Any]]]:
    """The score that all finished cells have, and the best points by its mean over the seeds, best first.

    A point with a cell that did not end well is not among them.
    """
    points: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows(sweep):
        points.setdefault(tuple(str(row[k]) for k in sweep.keys), []).append(row)
    good = [mine for mine in points.values() if all(row["status"] == "done" for row in mine)]
    for score, sign in (("accuracy", -1.0), ("loss", 1.0)):
        means = [mean([row.get(score) for row in mine]) for mine in good]
        found = [(m, mine[0]) for m, mine in zip(means, good, strict=True) if m is not None]
        if found and len(found) == len(good):
            found.sort(key=lambda pair: sign * pair[0])
            return score, [{**{k: row[k] for k in sweep.keys}, score: m} for m, row in found[:most]]
    return "", []


def write_results(sweep: Sweep) -> None:
    from offbeat.lab.runs.folder import Folder, metrics_table

    table = rows(sweep)
    for key in sweep.keys:  # a key with values of several kinds becomes text
        if len({type(row[key]) for row in table if row[key] is not None}) > 1:
            for row in table:
                row[key] = None if row[key] is None else str(row[key])
    try:
        sweep.folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StoreError(f"cannot write to {sweep.folder}: {e.strerror}") from None
    Folder(sweep.folder).write_table("results.parquet", metrics_table(table))
