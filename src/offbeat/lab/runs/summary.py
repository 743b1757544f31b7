"""What a run comes to, in one row."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from offbeat.engines.protocol import Engine
from offbeat.lab.runs.plan import Plan
from offbeat.lab.watch import Watch, ratio


def summary(plan: Plan, engine: Engine, watch: Watch, status: str) -> dict[str, Any]:
    """Counts, scores, staleness, where the time went; `per_worker` has the latter for each of them."""
    total, last = watch.total, watch.metrics[-1]
    wall = watch.wall_seconds
    shares = engine.breakdown()
    present = sum(w["present"] for w in shares)
    chance = getattr(plan.task, "chance", None)
    accuracy = last["accuracy"]
    target = plan.budget.until
    return {
        "status": status,
        "why": watch.why,
        "task": plan.task.name,
        "solver": plan.solver_name,
        "workers": plan.cluster.workers,
        "seed": plan.seed,
        "batch": plan.batch,
        "global_batch": plan.batch * plan.cluster.workers,
        "updates": engine.updates,
        "samples": engine.samples,
        "samples_applied": engine.samples_applied,
        "epochs": engine.samples / plan.task.size if plan.task.size else None,
        "loss": last["loss"],
        "accuracy": accuracy,
        "train_loss": next((m["train_loss"] for m in reversed(watch.metrics) if m["train_loss"] is not None), None),
        "best": watch.best_value,
        "stalled": bool(accuracy is not None and chance is not None and accuracy <= chance * 1.05),
        "target": None if target is None else str(target),
        "time_to_target": None if target is None else target.time(watch.metrics),
        "mean_staleness": ratio(total.staleness, total.stale),
        "max_staleness": total.max_staleness if total.stale else None,
        "engine": plan.engine,
        "virtual_seconds": engine.now if engine.clock == "virtual" else None,
        "wall_seconds": wall if engine.clock == "virtual" else engine.now,
        "samples_per_second": ratio(engine.samples, wall if engine.clock == "virtual" else engine.now),
        "computing_share": ratio(sum(w["computing"] for w in shares), present),
        "delayed_share": ratio(sum(w["delayed"] for w in shares), present),
        "communicating_share": ratio(sum(w["communicating"] for w in shares), present),
        "idle_share": ratio(sum(w["waiting"] for w in shares), present),
        "per_worker": shares,
        "per_machine": per_machine(shares, engine.machines),
        "server_busy_share": ratio(engine.served, engine.now),
        "server_queued_seconds": engine.queued,
        "bytes": engine.bytes,
        "lost_share": engine.lost_share,
        "incidents": list(engine.incidents),
        "lost_updates": engine.lost_updates,
        "params_sha256": params_sha256(engine.point.x),
    }


def per_machine(shares: Sequence[Mapping[str, float]], machines: Sequence[str]) -> list[dict[str, Any]]:
    """Where the seconds of the workers of each machine went; who moved counts where it was last."""
    found: dict[str, dict[str, Any]] = {}
    for share, machine in zip(shares, machines, strict=False):
        if machine:
            mine = found.setdefault(machine, {"machine": machine, "workers": 0, **dict.fromkeys(share, 0.0)})
            mine["workers"] += 1
            for name, seconds in share.items():
                mine[name] += seconds
    return [found[machine] for machine in sorted(found)]


def params_sha256(x: torch.Tensor) -> str:
    """Of the float32 parameters, so that two runs can be compared by eye."""
    return hashlib.sha256(x.detach().to(torch.float32).cpu().numpy().tobytes()).hexdigest()
