"""What a run would take: memory, disk and time, from a few real gradients."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from offbeat.core.bits import usual_torch
from offbeat.core.feed import Feed
from offbeat.core.units import format_size
from offbeat.lab.config.objects import recorded_toml
from offbeat.lab.runs.conditions import cores
from offbeat.lab.runs.plan import Plan
from offbeat.lab.studies.dry_run import DryRun

if TYPE_CHECKING:
    from offbeat.lab.studies.study import Study

_PROBES = 3
_ROW_BYTES = 60  # of the trace on disk, compressed; measured on ASGD runs


def gradient_seconds(plan: Plan, feed: Feed) -> float:
    """Wall time of one gradient on one core: the fastest of a few."""
    point = plan.task.init(plan.seed)
    times = []
    with usual_torch():
        for k in range(_PROBES + 1):
            batch = feed.indices(0, k)
            started = time.perf_counter()
            plan.task.gradient(point, batch, k)
            times.append(time.perf_counter() - started)
    return min(times[1:])


def expected_gradients(plan: Plan) -> float | None:
    """How many gradients the budget comes to; None where only the clock says."""
    amount = plan.budget.amount
    assert amount is not None
    samples = plan.samples_budget
    if samples is not None:
        return samples / plan.batch
    if amount.unit == "updates":
        return amount.count * (plan.cluster.workers if plan.solver.barrier else 1)
    per_worker = [
        plan.cluster.mean_compute(i, plan.batch) + sum(d.mean for d in plan.cluster.delays_of(i))
        for i in range(plan.cluster.workers)
    ]
    return sum(amount.count / t for t in per_worker if t > 0) or None


def estimate(plan: Plan, folder: Path | None, pool: int | None = None) -> DryRun:
    """What `offbeat run` would do, without doing it; without a folder, in memory."""
    one = gradient_seconds(plan, plan.feed())
    count = expected_gradients(plan)
    threads = 1 if plan.cluster.workers == 1 else min(max(pool if pool is not None else cores(), 1), cores())
    vectors = plan.cluster.workers + 2 * threads + 8
    facts = {
        "task": plan.task.name,
        "solver": plan.solver_name,
        "workers": plan.cluster.workers,
        "batch": plan.batch,
        "global_batch": plan.batch * plan.cluster.workers,
        "budget": str(plan.budget.amount) + (f" or {plan.budget.until}" if plan.budget.until else ""),
        "gradients": None if count is None else round(count),
        "parameters": plan.task.layout.size,
        "memory": f"about {format_size(_round(vectors * plan.task.nbytes))} of vectors",
        "disk": f"about {format_size(_round(_disk(plan, count)))}",
        "wall_time": "unknown" if count is None else f"about {_seconds(count * one / threads)} on {threads} threads",
        "folder": "none: it stays in memory" if folder is None else str(folder),
        "configuration": "\n" + recorded_toml(plan.config),
    }
    return DryRun(facts)


def estimate_study(study: "Study", done: int, processes: int) -> DryRun:
    """Cells, time and disk of a sweep or comparison, from one gradient of each distinct task and batch."""
    known: dict[str, float] = {}
    total = disk = 0.0
    unknown_cells = 0
    for cell in study.cells:
        if cell.outcome is not None:
            continue
        plan = cell.plan()
        key = f"{cell.config['task']}/{plan.batch}"
        if key not in known:
            known[key] = gradient_seconds(plan, plan.feed())
        count = expected_gradients(plan)
        disk += _disk(plan, count)
        if count is None:
            unknown_cells += 1
        else:
            total += count * known[key]
    facts = {
        "cells": len(study.cells),
        "done": done,
        "to_run": len(study.cells) - done,
        "keys": ", ".join(study.keys),
        "processes": processes,
        "wall_time": f"about {_seconds(total / processes)}"
        + (f" and {unknown_cells} unknown" if unknown_cells else ""),
        "disk": f"about {format_size(_round(disk))}",
        "folder": str(study.folder),
    }
    return DryRun(facts)


def _disk(plan: Plan, count: float | None) -> float:
    """Bytes of a run's folder: the trace, and three vectors."""
    return (count or 0) * _ROW_BYTES + 3 * plan.task.nbytes


def _round(value: float) -> int:
    """Two digits are all an estimate has."""
    return int(float(f"{value:.2g}"))


def _seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"
