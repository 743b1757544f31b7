"""Runs as rows of one tidy table."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from offbeat.folders.finding import find
from offbeat.folders.run_files import RunFiles


def load(*patterns: str | Path) -> pa.Table:
    """One row a run, tidy: its folder, its configuration (dotted keys) and its outcome.

    `offbeat.load("runs/**").to_pandas()` gives a pandas frame.
    """
    rows = [tidy(run) for run in find(patterns or ("runs/**",))]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _typed([row.get(name) for row in rows]) for name in names})


def tidy(run: RunFiles) -> dict[str, Any]:
    """A run as one flat row; the configuration's keys are dotted, lists become text."""
    outcome = {k: v for k, v in run.summary.items() if not isinstance(v, list | dict)}
    head = {"run": run.place, "status": run.status, "why": run.info.why, "seed": run.seed}
    head |= {"task": run.task, "solver": run.solver, "workers": run.workers, "clock": run.clock}
    head["tags"] = ", ".join(run.tags)
    config = {k: v for k, v in flat(run.config).items() if k not in head}
    return {**head, **{k: v for k, v in outcome.items() if k not in head}, **config}


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = ", ".join(map(str, value)) if isinstance(value, list) else value
    return out


def _typed(values: list[Any]) -> pa.Array:
    """A column of one type; values of several kinds become text."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float}:
        return pa.array([None if v is None else float(v) for v in values] if float in kinds else values)
    if len(kinds) > 1:
        values = [None if v is None else str(v) for v in values]
    return pa.array(values)
