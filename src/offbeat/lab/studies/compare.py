"""Solvers side by side on one task and one cluster, over several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.core.budget import Target
from offbeat.engines.cluster import Cluster
from offbeat.lab.config import make, put
from offbeat.lab.engines import entry
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.ready import try_out, try_target
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.sweep import Sweep, check_count
from offbeat.report.numbers import known, mean, spread
from offbeat.report.targets import reference
from offbeat.solvers import solver_class


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
class Line:
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
    solvers: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    own: Mapping[str, Mapping[str, Any]] | None = None,
) -> Sweep:
    """One cell a solver and seed; `own` has settings for one solver alone, such as a learning rate tuned for it."""
    from copy import deepcopy

    check_count(len(solvers) * len(seeds))
    cells = []
    for solver in solvers:
        for seed in seeds:
            values = deepcopy(dict(base))
            put(values, "solver.name", solver)
            put(values, "seed", seed)
            for key, value in (own or {}).get(solver, {}).items():
                put(values, key, value)
            if solver_class(solver).alone:  # it gets that worker alone, without delay and without a network
                cluster = dict(values.get("cluster", {}))
                cluster.setdefault("workers", 4)
                values["cluster"] = Cluster.parse(**cluster).alone().to_dict()
            config = make(values)
            if seed == seeds[0]:
                plan = build(config)
                try_out(plan)
                try_target(plan)
            cells.append(
                Cell(config.plain(), folder / f"{solver.replace(':', '.')}-{seed}", {"solver": solver, "seed": seed})
            )
    return Sweep(cells, ["solver"], folder)


def summarise(sweep: Sweep, target: Target | None) -> list[Line]:
    """The table, from the runs' folders."""
    solvers = list(dict.fromkeys(str(cell.keys["solver"]) for cell in sweep.cells))
    cells = {solver: [c for c in sweep.cells if c.keys["solver"] == solver] for solver in solvers}
    times = {solver: [None if target is None else _time_to(c, target) for c in mine] for solver, mine in cells.items()}
    first = reference(solvers, list(times.values()))
    over = None if first is None else solvers[first]
    unit = None if over is None else mean(times[over])
    return [_line(solver, cells[solver], times[solver], over, unit) for solver in solvers]


def fairness(sweep: Sweep) -> list[str]:
    """One line where solvers share a learning rate although their updates are of different numbers of samples."""
    sizes: dict[str, float] = {}
    rates: dict[str, float] = {}
    for cell in sweep.cells:
        outcome, lr = cell.outcome or {}, cell.config.get("optimizer", {}).get("lr")
        if lr is not None and outcome.get("updates") and outcome.get("samples"):
            sizes.setdefault(str(cell.keys["solver"]), outcome["samples"] / outcome["updates"])
            rates.setdefault(str(cell.keys["solver"]), lr)
    if len(sizes) < 2 or len(set(rates.values())) > 1:
        return []
    small, large = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    factor, lr = sizes[large] / sizes[small], rates[large]
    if factor < 1.5:
        return []
    return [
        f"One learning rate for all ({lr:g}), but an update of {large} is of {sizes[large]:.3g} samples and one of "
        f"{small} of {sizes[small]:.3g}: tune it for each, or scale it (--set {large}:optimizer.lr={lr * factor:.3g})."
    ]


def _line(
    solver: str, cells: Sequence[Cell], times: Sequence[float | None], over: str | None, unit: float | None
) -> Line:
    outcomes = [c.outcome or {"status": "not run"} for c in cells]
    statuses = [o["status"] for o in outcomes]
    clock = entry(cells[0].config["engine"]).clock
    middle = mean(times) if all(times) else None
    return Line(
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
