"""One row of metrics: the held-out scores of a point, and what training came to since the row before."""

from math import isfinite
from typing import Any

from offbeat.core.budget import HIGHER_IS_BETTER
from offbeat.core.errors import ConfigError
from offbeat.core.task import Point
from offbeat.engines.protocol import Engine
from offbeat.lab.runs.plan import Plan
from offbeat.lab.watch.tally import Tally, ratio


def measure(plan: Plan, engine: Engine, since: Tally) -> tuple[dict[str, Any], Point]:
    """The row of this moment, and the point that was evaluated."""
    size = plan.task.size
    point = engine.point
    held_out = plan.task.evaluate(point, engine.pool.map)
    row = {
        "time": engine.now,
        "updates": engine.updates,
        "samples": engine.samples,
        "epoch": engine.samples / size if size else None,
        "train_loss": ratio(since.loss, since.samples),
        "train_accuracy": ratio(since.correct, since.classified),
        "loss": held_out.get("loss"),
        "accuracy": held_out.get("accuracy"),
        "grad_norm": ratio(since.norm, since.normed),
        "weight_norm": float(point.x.norm()),
        "staleness": ratio(since.staleness, since.stale),
        "lr": engine.lr,
        "batch": plan.batch,
        "bytes": engine.bytes,
        **{k: v for k, v in held_out.items() if k not in ("loss", "accuracy")},
    }
    return row, point


def check_first(plan: Plan, row: dict[str, Any]) -> None:
    """What is wrong at the initial parameters is no divergence, and a target must be measured."""
    if row["loss"] is not None and not isfinite(row["loss"]):
        raise ConfigError(
            f"the held-out loss is {row['loss']} at the initial parameters: check the model, the loss and the data"
        )
    until = plan.budget.until
    if until is not None and row.get(until.metric) is None:
        known = " and ".join(name for name in HIGHER_IS_BETTER if row.get(name) is not None) or "nothing"
        raise ConfigError(f"target {until} cannot be reached: task {plan.task.name!r} measures {known}")
