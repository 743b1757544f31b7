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
from typing import Any, Unpack

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.task import Task
from offbeat.core.units import shown
from offbeat.lab.arguments import ClusterLike, SolverLike, Words, check_words, said
from offbeat.lab.config import NONE, Config, Objects, combinations, keys_of, make, merge, put
from offbeat.lab.runs.address import address
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.ready import try_out, try_target
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.places import HOW, Where, take_address
from offbeat.lab.studies.study import Study, placed
from offbeat.report.numbers import mean

_SWEEP_KEYS = ("grid", "list", "seeds")
MOST = 100_000
"""Cells of a sweep; each is a folder."""


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


def sweep(
    task: str | Path | Task,
    grid: Mapping[str, Sequence[Any]] | None = None,
    solver: SolverLike | None = None,
    cluster: ClusterLike = None,
    *,
    points: Sequence[Mapping[str, Any]] | None = None,
    seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    processes: int | None = None,
    on: str = "here",
    cpus: float | None = None,
    again: bool = False,
    progress: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    **words: Unpack[Words],
) -> Sweep:
    """A grid over any keys, times seeds; `offbeat sweep` of a file is the same. What is done is not run again.

    Args:
        task: as in `offbeat.train`, or a file with a [sweep] section (docs/runs.md).
        grid: lists of values by key: `{"optimizer.lr": [0.01, 0.05], "solver.name": ["sync", "asgd"]}`.
        solver: as in `offbeat.train`.
        cluster: as in `offbeat.train`.
        points: instead of a grid, the points one by one: `[{"optimizer.lr": 0.01, "data.batch": 8}, ...]`.
        seeds: so many seeds each, or which; 1 unless given.
        out: the folder of the sweep.
        processes: runs side by side, all cores unless given.
        on: where runs are computed: `"here"`, in processes of this machine, or `"ray"`, on the machines of a Ray
            cluster, of which `address` says where it is. (`engine="ray"` is something else: real runs on Ray, one after
            another.)
        cpus: of the Ray cluster, set aside for each run; 1 unless given.
        again: run anew what is finished.
        progress: whether progress is shown; in a notebook and on a terminal unless given.
        settings: any keys, as in `offbeat.train`, for all runs.
        words: all others are those of `offbeat.train`: `budget`, `batch`, `lr`, `engine`, ...
    """
    check_words("sweep", words, ("grid", "points", "seeds", "out", *HOW))
    where = Where(on, processes, take_address(on, words), cpus)
    values, objects = said(task, cluster, words, settings, solver)
    if grid is not None or points is not None:
        values.setdefault("sweep", {}).pop("grid", None)
        values["sweep"].pop("list", None)
    told = {"grid": grid or None, "list": points or None, "seeds": seeds}
    merge(values, {"sweep": {k: _listed(v) for k, v in told.items() if v is not None}})
    given = [word for word, value in {"solver": solver, **words}.items() if value is not None]
    fixed = {*keys_of(given), *(settings or ())}
    made = plan_sweep(values, out, task if isinstance(task, str | Path) else "the sweep", objects, fixed)
    made.run_in_python("sweep", where, again, progress)
    return made


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
        raise ConfigError(f"{what} has no [sweep] section with a grid or a list")
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
