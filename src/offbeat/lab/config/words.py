"""The words of `offbeat run` and of `offbeat.train`, and the keys of a configuration that they stand for."""

from collections.abc import Iterable, Mapping
from typing import Any

from offbeat.core.budget import Budget
from offbeat.lab.config.keys import LENGTHS, put

KEYS: Mapping[str, str] = {
    "solver": "solver.name",
    "clip": "solver.clip",
    "optimizer": "optimizer.name",
    "lr": "optimizer.lr",
    "schedule": "schedule.kind",
    "warmup": "schedule.warmup",
    "scale_lr": "scale.lr",
    "scale_batch": "scale.batch",
    "scale_workers": "scale.workers",
    "data": "task.data",
    "engine": "engine",
    "local": "local",
    "address": "ray.address",
    "workers": "cluster.workers",
    "compute": "cluster.compute",
    "delay": "cluster.delay",
    "latency": "cluster.latency",
    "bandwidth": "cluster.bandwidth",
    "batch": "data.batch",
    "global_batch": "data.global_batch",
    "partition": "data.partition",
    "sampling": "data.sampling",
    "validation": "data.validation",
    "folds": "data.folds",
    "fold": "data.fold",
    "until": "budget.until",
    "evaluate_every": "evaluate.every",
    "patience": "evaluate.patience",
    "keep_best": "evaluate.keep_best",
    "gap": "record.gap",
    "saves_per_epoch": "record.saves_per_epoch",
    "diagnose_every": "record.diagnose_every",
    "on_divergence": "on_divergence",
    "seed": "seed",
}


def say(values: dict[str, Any], words: Mapping[str, Any]) -> None:
    """Puts what was said into the values of a configuration; None is what was not said. A budget is a `Budget`."""
    for word, value in words.items():
        if value is None:
            continue
        for key, part in _budget(value).items() if word == "budget" else [(KEYS[word], value)]:
            put(values, key, part)


def keys_of(words: Iterable[str]) -> set[str]:
    """The keys that words stand for."""
    named = set(words)
    return {KEYS[word] for word in named & set(KEYS)} | {f"budget.{unit}" for unit in LENGTHS if "budget" in named}


def _budget(budget: Budget) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (amount := budget.amount) is not None:
        whole = amount.unit in ("samples", "updates")
        found[f"budget.{amount.unit}"] = int(amount.count) if whole else amount.count
    if (target := budget.until) is not None:
        found["budget.until"] = f"{target.metric}={target.value!r}"
    if budget.per != "global":
        found["budget.per"] = budget.per
    return found
