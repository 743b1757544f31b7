"""Run folders made up on the spot, as large as one likes: what reports are tried on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def make(
    path: Path,
    *,
    solver: str = "asgd",
    task: str = "digits",
    seed: int = 0,
    workers: int = 4,
    lr: float = 0.05,
    status: str = "done",
    clock: str = "virtual",
    accuracy: Sequence[float] = (0.1, 0.5, 0.9),
    seconds: float = 3.0,
    target: str | None = None,
    gradients: int = 40,
    settings: Mapping[str, Any] | None = None,
    files: Mapping[str, Any] | None = None,
) -> Path:
    """A folder whose run took `seconds`, with one evaluation for each accuracy and `gradients` rows of trace."""
    path.mkdir(parents=True)
    accuracy = [float(a) for a in accuracy]
    n = len(accuracy)
    config = {
        "task": {"name": task},
        "solver": {"name": solver},
        "optimizer": {"name": "sgd", "lr": lr},
        "cluster": {"workers": workers},
        "seed": seed,
        **(settings or {}),
    }
    trace = trace_table(gradients, workers, seconds)
    taus = np.asarray(trace["staleness"])
    summary = {
        "status": status,
        "task": task,
        "solver": solver,
        "workers": workers,
        "seed": seed,
        "batch": 32,
        "updates": gradients,
        "samples": 32 * gradients,
        "accuracy": accuracy[-1],
        "loss": 1 - accuracy[-1],
        "best": max(accuracy),
        "stalled": accuracy[-1] < 0.11,
        "target": target,
        "virtual_seconds": seconds,
        "mean_staleness": float(taus.mean()),
        "max_staleness": int(taus.max()),
        "idle_share": 0.0,
        "computing_share": 1.0,
        "delayed_share": 0.0,
        "communicating_share": 0.0,
        "per_worker": [
            {"present": seconds, "computing": seconds, "delayed": 0.0, "communicating": 0.0, "waiting": 0.0}
            for _ in range(workers)
        ],
        "params_sha256": f"{seed:064x}",
    }
    info = {"format": 1, "config": config, "key": path.name, "seed": seed, "clock": clock, "status": status}
    info |= {"why": "because", "versions": {"torch": "0"}, "task": {"parameters": 10}, "summary": summary}
    (path / "run.json").write_text(json.dumps(info))
    columns = {
        "time": np.linspace(0, seconds, n),
        "updates": np.linspace(0, gradients, n).astype(int),
        "samples": 32 * np.linspace(0, gradients, n).astype(int),
        "epoch": np.linspace(0, 2, n),
        "train_loss": [None, *(1 - np.array(accuracy[1:]))],
        "train_accuracy": [None, *accuracy[1:]],
        "loss": 1 - np.array(accuracy),
        "accuracy": accuracy,
        "grad_norm": np.ones(n),
        "weight_norm": np.arange(n) + 1.0,
        "lr": np.full(n, lr),
        "staleness": np.full(n, workers - 1.0),
    }
    pq.write_table(pa.table(columns), path / "metrics.parquet")
    pq.write_table(trace, path / "trace.parquet")
    for name, content in (files or {}).items():
        (path / name).write_text(json.dumps(content))
    return path


def evaluation(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> dict[str, Any]:
    """evaluation.json of a confusion matrix."""
    from offbeat.tasks.scores import class_scores

    pairs = [(i, j) for i, row in enumerate(matrix) for j, n in enumerate(row) for _ in range(n)]
    truth, predicted = np.array(pairs).T
    return {"test": {"loss": 0.5, **class_scores(truth, predicted, len(matrix), list(classes))}}


def trace_table(gradients: int, workers: int, seconds: float) -> pa.Table:
    """Workers take turns; each gradient is computed while the others' are applied, so tau = W - 1 in the end."""
    k = np.arange(gradients)
    step = seconds / gradients
    read = np.maximum(0, k - workers + 1)
    time = (k + 1) * step
    started = np.maximum(0, k - workers + 1) * step
    columns = {
        "time": time,
        "worker": (k % workers).astype(np.int32),
        "source": (k % workers).astype(np.int32),
        "draw": k // workers,
        "version_read": read,
        "version_applied": k,
        "staleness": k - read,
        "gap": np.sqrt(k + 1.0),
        "applied": np.ones(gradients, bool),
        "outcome": np.full(gradients, "applied"),
        "loss": 1 / (k + 1.0),
        "samples": np.full(gradients, 32, np.int32),
        "started": started,
        "computed": time,
        "grad_norm": np.ones(gradients),
        "correct": np.full(gradients, 16, np.int32),
    }
    return pa.table(columns)
