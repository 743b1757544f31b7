"""A run folder as plain values: what reports are made of, and everything else that reads one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offbeat.core.errors import StoreError
from offbeat.core.legible import legible
from offbeat.folders.description import ENDED, Description, read_description
from offbeat.folders.opening import there
from offbeat.folders.parquet import read_arrivals, read_numbers, read_trace
from offbeat.folders.side_notes import read_evaluation, read_partition, read_tags

_CHUNK = 10_000
METRICS = ("time", "updates", "samples")
"""The columns that every row of the metrics has."""


@dataclass(frozen=True)
class RunFiles:
    """What a folder says of its run. Everything is checked when it is read."""

    path: Path
    info: Description
    _tables: dict[str, pa.Table] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: Path) -> "RunFiles":
        return cls(path, read_description(path))

    def read_all(self) -> None:
        """Everything that a report shows, now: what is damaged is known before the first figure is drawn."""
        self.metrics(), self.trace(), self.diagnostics()
        _ = self.tags, self.evaluation, self.partition

    @property
    def name(self) -> str:
        return legible(self.path.resolve().name)

    @property
    def place(self) -> str:
        """The folder, fit to be shown."""
        return legible(self.path)

    @property
    def status(self) -> str:
        return self.info.status

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.info.outcome

    @property
    def config(self) -> dict[str, Any]:
        return self.info.config

    @property
    def solver(self) -> str:
        return str(self.summary.get("solver") or self._named("solver"))

    @property
    def task(self) -> str:
        return str(self.summary.get("task") or self._named("task"))

    def _named(self, section: str) -> str:
        return self.config.get(section, {}).get("name") or "?"

    @property
    def seed(self) -> int:
        return self.info.seed

    @property
    def workers(self) -> int:
        return int(self.summary.get("workers") or self.config.get("cluster", {}).get("workers") or 1)

    @property
    def clock(self) -> str:
        """Whose seconds: "virtual" or "wall"."""
        return self.info.clock

    @property
    def time_label(self) -> str:
        return f"{self.clock} time"

    @property
    def seconds(self) -> float | None:
        """How long it took, by its own clock."""
        return self.summary.get(f"{self.clock}_seconds")

    @cached_property
    def tags(self) -> list[str]:
        return read_tags(self.path)

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """Scores by class at the end, for each held-out set; empty where the task has none."""
        return read_evaluation(self.path)

    @cached_property
    def partition(self) -> dict[str, Any]:
        """Who had which labels; empty where the task has no dataset."""
        return read_partition(self.path)

    def has(self, name: str) -> bool:
        return there(self.path, name)

    def metrics(self) -> pa.Table:
        """One row an evaluation; without rows where the run has not got that far."""
        return self._table("metrics.parquet")

    def trace(self) -> pa.Table:
        """One row a gradient; without rows where the run has not ended."""
        return self._table("trace.parquet")

    def diagnostics(self) -> pa.Table:
        """What staleness did to single gradients; without rows where nobody asked for it."""
        return self._table("diagnostics.parquet")

    def arrivals(self) -> pa.Table:
        """In which order a real server heard from whom."""
        return self._table("arrivals.parquet")

    def _table(self, name: str) -> pa.Table:
        """Read once."""
        if name not in self._tables:
            try:
                self._tables[name] = self._read(name)
            except FileNotFoundError:
                if self.status in ENDED and name != "diagnostics.parquet":
                    raise StoreError(f"{self.path} has no {name}, and its run has ended: was it removed?") from None
                self._tables[name] = pa.table({})
        return self._tables[name]

    def _read(self, name: str) -> pa.Table:
        if name == "trace.parquet":
            return read_trace(self.path)
        if name == "arrivals.parquet":
            return read_arrivals(self.path)
        return read_numbers(self.path, name, *(METRICS if name == "metrics.parquet" else ()))

    @property
    def trace_end(self) -> float:
        """When the last gradient of the trace ended."""
        trace = self.trace()
        return float(column(trace, "time").max()) if trace.num_rows else 0.0

    def metric(self, name: str) -> NDArray[np.float64]:
        """A column of the metrics, with NaN where there is no value."""
        return column(self.metrics(), name)


def rows(table: pa.Table, *names: str) -> Iterator[dict[str, Any]]:
    """Row by row, with these columns (all unless given); a long table is not in memory a second time."""
    for batch in (table.select(names) if names else table).to_batches(_CHUNK):
        yield from batch.to_pylist()


def column(table: pa.Table, name: str) -> NDArray[np.float64]:
    """A column as floats, NaN where it is null or not there."""
    if name not in table.column_names or pa.types.is_null(table[name].type):
        return np.full(table.num_rows, np.nan)
    return np.asarray(table[name].cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
