"""What is read of a finished run: a number of its summary, a score of one class, or a metric on the way.

A place on an axis of a recipe may say what is read, besides what is run: `read.metric = "recall"`, `read.class = 3`,
`read.at = 0.5`. Cells that differ in nothing else are read of one run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from offbeat.core.errors import ConfigError
from offbeat.folders.run_files import RunFiles

READ = "read."


class Reading(Struct, frozen=True, forbid_unknown_fields=True, rename={"of_class": "class"}):
    """A number of a run: by its name alone, one of the summary."""

    metric: str
    of_class: int | None = None
    """The score of this class on the test set, at the end."""
    at: float | None = None
    """The metric when this share of the run's samples was processed: between two evaluations by a straight line."""

    def of(self, outcome: Mapping[str, Any]) -> float | None:
        """The number; None where the run has none of this name."""
        if self.of_class is not None:
            scores = _files(outcome).evaluation.get("test", {}).get(self.metric, [])
            return float(scores[self.of_class]) if self.of_class < len(scores) else None
        if self.at is not None:
            return self._on_the_way(_files(outcome))
        found = outcome.get(self.metric)
        return None if found is None else float(found)

    def _on_the_way(self, run: RunFiles) -> float | None:
        samples, values = run.metric("samples"), run.metric(self.metric)
        there = np.isfinite(values)
        if self.at is None or not there.any():
            return None
        return float(np.interp(self.at * samples[-1], samples[there], values[there]))


def reading_of(name: str, said: Mapping[str, Any]) -> Reading:
    """From the settings of a cell; what is wrong with them in one line."""
    mine = {key.removeprefix(READ): value for key, value in said.items() if key.startswith(READ)}
    try:
        found = msgspec.convert(mine, Reading)
    except msgspec.ValidationError as e:
        raise ConfigError(f"recipe {name}: read: {e}") from None
    if found.of_class is not None and found.at is not None:
        raise ConfigError(f"recipe {name}: read.class is of the end of a run, and cannot be read at {found.at:g} of it")
    if found.at is not None and not 0 <= found.at <= 1:
        raise ConfigError(f"recipe {name}: read.at must be a share from 0 to 1, got {found.at:g}")
    return found


def _files(outcome: Mapping[str, Any]) -> RunFiles:
    return RunFiles.open(Path(outcome["run"]))
