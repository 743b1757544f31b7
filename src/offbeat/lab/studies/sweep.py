"""Sweeps: a grid or a list over any configuration keys, times seeds; one tidy table at the end.

task = "digits"
cluster.workers = 8

[sweep]
seeds = 3                       # 0, 1, 2; or a list
grid = { "solver.name" = ["sync", "asgd"], "optimizer.lr" = [0.01, 0.05] }
# or: list = [ { "solver.name" = "sync" }, { "solver.name" = "asgd", "optimizer.lr" = 0.01 } ]
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from html import escape
from math import prod
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.task import Task
from offbeat.core.units import shown
from offbeat.lab.config import NONE, Config, Objects, combinations, make, put
from offbeat.lab.runs.address import address
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.ready import try_out, try_target
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.study import Study, placed
from offbeat.report.numbers import mean

_SWEEP_KEYS = ("grid", "list", "seeds")
MOST = 100_000
"""Cells of a sweep; each is a folder."""
Grid = Mapping[str, Sequence[Any]]
"""Lists of values, by key."""
Points = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Sweep(Study):
    """All runs of a sweep; `table` has them, `best()` the best of them."""

    def best(self, most: int = 3) -> list[dict[str, Any]]:
        """The best points by the mean of their score over the seeds, best first."""
        return self.ranking(most)[1]

    def ranking(self, most: int = 3) -> tuple[str, list[dict[str, Any]]]:
        """The score that all finished cells have, and the best points by its mean over the seeds, best first.

        A point with a cell that did not end well is not among them.
        """
        points: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in self.rows():
            points.setdefault(tuple(str(row[k]) for k in self.keys), []).append(row)
        good = [mine for mine in points.values() if all(row["status"] == "done" for row in mine)]
        for score, sign in (("accuracy", -1.0), ("loss", 1.0)):
            means = [mean([row.get(score) for row in mine]) for mine in good]
            found = [(m, mine[0]) for m, mine in zip(means, good, strict=True) if m is not None]
            if found and len(found) == len(good):
                found.sort(key=lambda pair: sign * pair[0])
                return score, [{**{k: row[k] for k in self.keys}, score: m} for m, row in found[:most]]
        return "", []

    def __repr__(self) -> str:
        statuses = [row["status"] for row in self.rows()]
        counts = ", ".join(f"{statuses.count(s)} {s}" for s in dict.fromkeys(statuses))
        return f"{len(statuses)} cell{'s' if len(statuses) > 1 else ''}: {counts}"

    def _repr_html_(self) -> str:
        from offbeat.report.notebook import html_table

        score, best = self.ranking()
        said = f"<p>{escape(str(self))}, in {escape(str(self.folder))}; the best by {score}:</p>"
        return said + html_table([*self.keys, score], [list(row.values()) for row in best]) if best else said


def say_what_is_swept(
    values: dict[str, Any], grid: Grid | None, points: Points | None = None, seeds: int | Sequence[int] | None = None
) -> None:
    """Puts a grid, points or seeds that were said into the section [sweep], in place of the file's."""
    told = {"grid": grid or None, "list": points or None, "seeds": seeds}
    section = values.setdefault("sweep", {})
    if not isinstance(section, dict):
        return  # refused where the section is read
    if grid is not None or points is not None:
        section.pop("grid", None)
        section.pop("list", None)
    section |= {k: _listed(v) for k, v in told.items() if v is not None}


def plan_sweep(
    values: Mapping[str, Any],
    out: str | Path | None,
    what: str | Path,
    objects: Objects = NONE,
    fixed: Collection[str] = (),
) -> Sweep:
    """Every point of the section [sweep], with every seed, over the rest of the values. All is checked before it runs.

    `what` is the file that they are from, whose name the folder then has, or whatever else errors should name; `fixed`
    are keys that were given a value beside it.
    """
    base = dict(values)
    section = base.pop("sweep", None)
    if not isinstance(section, dict) or not section:
        why = "it needs one, or a grid such as --grid optimizer.lr=0.01,0.1"
        raise ConfigError(f"{what} has no [sweep] section with a grid or a list: {why}")
    for key in section:
        if key not in _SWEEP_KEYS:
            raise unknown("key", f"sweep.{key}", [f"sweep.{k}" for k in _SWEEP_KEYS])
    if out is None and Path(what).suffix == ".toml":
        out = Path("sweeps") / Path(what).stem
    points, seeds = _cells(section, what), seeds_of(section.get("seeds", 1), "sweep.seeds")
    check_count(len(points) * len(seeds))
    for key in sorted({k for point in points for k in point} & set(fixed)):
        raise ConfigError(f"{key} is swept, and cannot have a value of its own as well")
    cells: dict[str, Cell] = {}
    for point in points:
        made: Task | None = None  # by the first seed of a point; with the others its data are the same
        for seed in seeds:
            keys = {**point, "seed": seed}
            config, tried = _tried_out(base, keys, objects, tried=made is None)
            made = made if tried is None else tried
            # Two points that come to the same run are one cell.
            cell = Cell(config.plain(), Path("cells") / config.hash, keys, address(config, objects, made), objects)
            cells.setdefault(config.hash, cell)
    every = list(cells.values())
    return Sweep(every, list(dict.fromkeys(k for point in points for k in point)), placed(every, out, "sweeps"))


def check_count(cells: int) -> None:
    """Refuses more cells than anybody means."""
    if cells > MOST:
        raise ConfigError(f"a sweep or comparison has at most {MOST:,} cells, got {cells:,}")


def configured(base: Mapping[str, Any], point: Mapping[str, Any], objects: Objects, *, tried: bool) -> Config:
    """The configuration of a cell; one of each point is tried out, since a seed changes nothing about that."""
    return _tried_out(base, point, objects, tried=tried)[0]


def _tried_out(
    base: Mapping[str, Any], point: Mapping[str, Any], objects: Objects, *, tried: bool
) -> tuple[Config, Task | None]:
    """The same, and the task that was tried out."""
    values = deepcopy(dict(base))
    for name in ("task", "solver", "optimizer"):
        if isinstance(values.get(name), str):
            values[name] = {"name": values[name]}
    for key, value in point.items():
        put(values, key, value)
    try:
        config = make(values, objects)
        if not tried:
            return config, None
        plan = build(config, objects)
        try_out(plan)
        try_target(plan)
        return config, plan.task
    except ConfigError as e:
        named = ", ".join(f"{k}={_short(v)}" for k, v in point.items())
        raise ConfigError(f"cell {named}: {e}") from None


def _short(value: Any) -> str:
    return shown(value) if not isinstance(value, str) or len(value) > 100 else value


def _listed(value: Any) -> Any:
    """What Python gave, as a file would have it: lists and dicts."""
    if isinstance(value, Mapping):
        return {k: list(v) if isinstance(v, Sequence) and not isinstance(v, str) else v for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [dict(v) if isinstance(v, Mapping) else v for v in value]
    return value


def _cells(section: Mapping[str, Any], what: str | Path) -> list[dict[str, Any]]:
    grid, points = section.get("grid"), section.get("list")
    if (grid is None) == (points is None):
        raise ConfigError(f"{what}: [sweep] needs a grid or a list, and not both")
    if grid is not None:
        if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()):
            raise ConfigError(f"{what}: sweep.grid must give a list of values for each key, got {grid!r}")
        check_count(prod(map(len, grid.values())))
        return combinations(grid)
    if not isinstance(points, list) or not points or not all(isinstance(p, dict) for p in points):
        raise ConfigError(f"{what}: sweep.list must be a list of tables of keys, got {points!r}")
    return points


def seeds_of(value: Any, what: str) -> list[int]:
    """So many seeds, or these, each once."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        check_count(value)
        return list(range(value))
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if listed and value and all(isinstance(s, int) and not isinstance(s, bool) for s in value):
        return list(dict.fromkeys(value))
    raise ConfigError(f"{what} must be a number of seeds from 1, or a list of them, got {shown(value)}")
