"""Solvers side by side on one task and one cluster, over several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from offbeat.core.budget import Target
from offbeat.engines.cluster import Cluster
from offbeat.lab.cells import Cell
from offbeat.lab.config import make, put
from offbeat.lab.plan import check_rule
from offbeat.lab.sweep import Sweep

ROUNDING = 1e-12  # relative; a spread below it is that of the sum, not of the seeds
ALONE = ("plain", "constant-delay")
"""Solvers that run on one worker: they get that worker alone, without delay and without a network."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds, of those that have a value."""

    mean: float | None
    std: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        known = [v for v in values if v is not None]
        if not known:
            return cls(None, 0.0, 0)
        mean = sum(known) / len(known)
        var = sum((v - mean) ** 2 for v in known) / (len(known) - 1) if len(known) > 1 else 0.0
        std = sqrt(var)
        return cls(mean, std if std > ROUNDING * abs(mean) else 0.0, len(known))


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
    """Of the mean time to the target against the first solver's; None unless every seed of both reached it."""
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

    cells = []
    for solver in solvers:
        for seed in seeds:
            values = deepcopy(dict(base))
            put(values, "solver.name", solver)
            put(values, "seed", seed)
            for key, value in (own or {}).get(solver, {}).items():
                put(values, key, value)
            if solver in ALONE:
                cluster = dict(values.get("cluster", {}))
                cluster.setdefault("workers", 4)
                values["cluster"] = Cluster.parse(**cluster).alone().to_dict()
            config = make(values)
            check_rule(config)
            cells.append(
                Cell(config.plain(), folder / f"{solver.replace(':', '.')}-{seed}", {"solver": solver, "seed": seed})
            )
    return Sweep(cells, ["solver"], folder)


def summarise(sweep: Sweep, target: Target | None) -> list[Line]:
    """The table, from the runs' folders."""
    lines: list[Line] = []
    for solver in dict.fromkeys(cell.keys["solver"] for cell in sweep.cells):
        mine = [c for c in sweep.cells if c.keys["solver"] == solver]
        outcomes = [c.outcome or {"status": "not run"} for c in mine]
        times = Spread.of([None if target is None else _time_to(c, target) for c in mine])
        first = lines[0].time_to_target if lines else times
        reached = times.count == len(mine) and first.mean is not None and first.count == len(mine) and times.mean
        statuses = [o["status"] for o in outcomes]
        clock = "virtual" if mine[0].config.get("engine", "sim") == "sim" else "wall"
        lines.append(
            Line(
                solver=solver,
                workers=max(o.get("workers", 0) for o in outcomes),
                seeds=len(mine),
                accuracy=Spread.of([o.get("accuracy") for o in outcomes]),
                loss=Spread.of([o.get("loss") for o in outcomes]),
                time_to_target=times,
                speed_up=first.mean / times.mean if reached and first.mean and times.mean else None,
                staleness=Spread.of([o.get("mean_staleness") for o in outcomes]),
                idle=Spread.of([o.get("idle_share") for o in outcomes]),
                seconds=Spread.of([o.get("wall_seconds" if clock == "wall" else "virtual_seconds") for o in outcomes]),
                statuses={s: statuses.count(s) for s in dict.fromkeys(statuses)},
                clock=clock,
            )
        )
    return lines


def _time_to(cell: Cell, target: Target) -> float | None:
    from offbeat.core.errors import StoreError
    from offbeat.lab.folder import Folder

    try:
        return target.time(Folder(cell.folder).read_table("metrics.parquet").to_pylist())
    except StoreError:
        return None
