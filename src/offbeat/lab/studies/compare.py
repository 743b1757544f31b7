"""Solvers side by side on one task and one cluster, over several seeds."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster
from offbeat.lab.arguments import SolverLike
from offbeat.lab.arguments import objects as objects_of
from offbeat.lab.config import Config, make, merge
from offbeat.lab.config.make import WORKERS
from offbeat.lab.config.objects import solver_name
from offbeat.lab.engines import entry
from offbeat.lab.runs.address import address
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.ready import try_out, try_target
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.study import placed
from offbeat.lab.studies.sweep import check_count
from offbeat.report.numbers import known, mean, spread
from offbeat.report.targets import reference
from offbeat.solvers import solver_class

_UNEQUAL = 1.5
"""Updates whose sizes differ by less are called equal: rules that drop a gradient now and then are among them."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds, of those that have a value."""

    mean: float | None
    std: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        return cls(mean(values), spread(values), len(known(values)))


@dataclass(frozen=True)
class SolverLine:
    """One solver's line in the table."""

    solver: str
    workers: int
    seeds: int
    accuracy: Spread
    loss: Spread
    time_to_target: Spread
    speed_up: float | None
    """Of the mean time to the target over that of `over`; None unless every seed reached it."""
    over: str | None
    """The solver that speed-ups are over: plain where all of its seeds got there, else the first that did."""
    staleness: Spread
    idle: Spread
    seconds: Spread
    """By the clock of its engine."""
    statuses: Mapping[str, int]
    clock: str = "virtual"


def plan_comparison(
    base: Mapping[str, Any],
    solvers: Sequence[SolverLike],
    seeds: Sequence[int],
    out: str | Path | None,
    settings: Mapping[str, Any] | None = None,
    task: Task | None = None,
) -> tuple[list[Cell], Path]:
    """One cell a solver and seed, and their folder.

    `settings` are for all, or for one solver alone, such as a learning rate tuned for it: `sync:optimizer.lr`.
    """
    given = {name_of(solver): objects_of(task, solver) for solver in solvers}
    if not given:
        raise ConfigError("a comparison needs a solver")
    if len(given) < len(solvers):
        twice = ",".join(map(name_of, solvers))
        raise ConfigError(
            f"each solver once, got {twice!r}: offbeat.solver(..., label=...) tells two of one name apart"
        )
    check_count(len(given) * len(seeds))
    shared, own = split_settings(settings or {}, list(given))
    cells = []
    for name, objects in given.items():
        for seed in seeds:
            values = deepcopy(dict(base))
            merge(values, shared)
            merge(values, {"seed": seed} if objects.kind is not None else {"seed": seed, "solver.name": name})
            merge(values, own.get(name, {}))
            if (objects.kind or solver_class(name)).alone:  # it gets that worker alone, without delay and network
                cluster = dict(values.get("cluster", {}))
                cluster.setdefault("workers", WORKERS)
                values["cluster"] = Cluster.parse(**cluster).alone().to_dict()
            config = make(values, objects)
            if seed == seeds[0]:
                plan = build(config, objects)
                try_out(plan)
                try_target(plan)
            place = Path(f"{name.replace(':', '.').replace('/', '.')}-{seed}")
            known_by = address(config, objects, plan.task)  # the data are the same with every seed
            cells.append(Cell(config.plain(), place, {"solver": name, "seed": seed}, known_by, objects))
    return cells, placed(cells, out, "comparisons")


def name_of(solver: SolverLike) -> str:
    """What a comparison calls a solver."""
    return solver if isinstance(solver, str) else solver_name(solver)


def split_settings(
    settings: Mapping[str, Any], names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings for all, and those for one solver: `sync:optimizer.lr`."""
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for text, value in settings.items():
        name, colon, key = text.rpartition(":")
        if colon and name not in names:
            raise unknown("solver of this comparison", name, names)
        (own.setdefault(name, {}) if colon else shared)[key] = value
    return shared, own


def summarise(cells: Sequence[Cell], target: Target | None) -> list[SolverLine]:
    """The table, from the runs' folders."""
    solvers = list(dict.fromkeys(str(cell.keys["solver"]) for cell in cells))
    mine = {solver: [c for c in cells if c.keys["solver"] == solver] for solver in solvers}
    times = {solver: [None if target is None else _time_to(c, target) for c in some] for solver, some in mine.items()}
    first = reference(solvers, list(times.values()))
    over = None if first is None else solvers[first]
    unit = None if over is None else mean(times[over])
    return [_line(solver, mine[solver], times[solver], over, unit) for solver in solvers]


def fairness(cells: Sequence[Cell]) -> list[str]:
    """One line where solvers share a learning rate although their updates are of different numbers of samples."""
    sizes: dict[str, float] = {}
    sharing: dict[float, dict[str, None]] = {}
    for cell in cells:
        outcome, lr = cell.outcome or {}, _rate(cell)
        if lr is not None and outcome.get("updates") and outcome.get("samples"):
            sizes.setdefault(str(cell.keys["solver"]), outcome["samples"] / outcome["updates"])
            sharing.setdefault(lr, {})[str(cell.keys["solver"])] = None
    pairs = [(min(s, key=sizes.__getitem__), max(s, key=sizes.__getitem__), lr) for lr, s in sharing.items()]
    factor, small, large, lr = max((sizes[b] / sizes[a], a, b, lr) for a, b, lr in pairs) if pairs else (1.0, "", "", 0)
    if factor < _UNEQUAL:
        return []
    return [
        f"One learning rate ({lr:g}), but an update is of {_samples(sizes[large])} for {large} and of "
        f"{_samples(sizes[small])} for {small}: tune it (offbeat sweep), or scale it "
        f"(--set {large}:optimizer.lr={lr * factor:.3g})."
    ]


def _rate(cell: Cell) -> float | None:
    """The learning rate of a run, as it was scaled; None where an object does not tell."""
    if cell.objects.solver is None:
        return Config.model_validate(cell.config).lr
    found = getattr(getattr(cell.objects.solver, "opt", None), "keywords", {}).get("lr")
    return found if isinstance(found, float | int) else None


def _samples(size: float) -> str:
    return f"{size:.3g} sample{'' if size == 1 else 's'}"


def _line(
    solver: str, cells: Sequence[Cell], times: Sequence[float | None], over: str | None, unit: float | None
) -> SolverLine:
    outcomes = [c.outcome or {"status": "not run"} for c in cells]
    statuses = [o["status"] for o in outcomes]
    clock = entry(cells[0].config["engine"]).clock
    middle = mean(times) if all(times) else None
    return SolverLine(
        solver=solver,
        workers=max(o.get("workers", 0) for o in outcomes),
        seeds=len(cells),
        accuracy=Spread.of([o.get("accuracy") for o in outcomes]),
        loss=Spread.of([o.get("loss") for o in outcomes]),
        time_to_target=Spread.of(times),
        speed_up=unit / middle if unit and middle else None,
        over=over,
        staleness=Spread.of([o.get("mean_staleness") for o in outcomes]),
        idle=Spread.of([o.get("idle_share") for o in outcomes]),
        seconds=Spread.of([o.get("wall_seconds" if clock == "wall" else "virtual_seconds") for o in outcomes]),
        statuses={s: statuses.count(s) for s in dict.fromkeys(statuses)},
        clock=clock,
    )


def _time_to(cell: Cell, target: Target) -> float | None:
    from offbeat.core.errors import StoreError
    from offbeat.folders.run_files import RunFiles

    try:
        return target.time(RunFiles.open(cell.folder).metrics().to_pylist())
    except StoreError:
        return None
