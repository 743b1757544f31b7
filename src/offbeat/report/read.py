"""Run folders as plain values: what reports are made of."""

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from offbeat.core.errors import OffbeatWarning, StoreError
from offbeat.core.format import check_format

ENDED = ("done", "diverged")
ALWAYS = ("metrics.parquet", "trace.parquet")  # what every run that has ended left


@dataclass(frozen=True)
class RunFiles:
    """What a folder says of its run."""

    path: Path
    info: dict[str, Any]
    _tables: dict[str, pa.Table] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: Path) -> "RunFiles":
        try:
            info = json.loads((path / "run.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"{path} is not a run folder: it has no run.json") from None
        except (OSError, ValueError) as e:
            raise StoreError(f"{path / 'run.json'} cannot be read: {e}") from None
        if not isinstance(info, dict) or not isinstance(info.get("config"), dict):
            raise StoreError(f"{path / 'run.json'} is not a run's description")
        check_format(path, info.get("format"))
        return cls(path, info)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def status(self) -> str:
        return str(self.info.get("status"))

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = self.info.get("summary", {})
        return summary

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.info["config"]
        return config

    @property
    def solver(self) -> str:
        return str(self.summary.get("solver") or self.config.get("solver", {}).get("name", "?"))

    @property
    def task(self) -> str:
        return str(self.summary.get("task") or self.config.get("task", {}).get("name", "?"))

    @property
    def seed(self) -> int:
        return int(self.info.get("seed", self.config.get("seed", 0)))

    @property
    def workers(self) -> int:
        return int(self.summary.get("workers") or self.config.get("cluster", {}).get("workers", 1))

    @property
    def clock(self) -> str:
        """Whose seconds: "virtual" or "wall"."""
        return str(self.info.get("clock", "virtual"))

    @property
    def time_label(self) -> str:
        return f"{self.clock} time"

    @property
    def seconds(self) -> float | None:
        """How long it took, by its own clock."""
        return self.summary.get(f"{self.clock}_seconds")

    @cached_property
    def tags(self) -> list[str]:
        found = self.json("tags.json")
        return [str(t) for t in found] if isinstance(found, list) else []

    def json(self, name: str) -> Any:
        """A further file of the folder; None where there is none."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as e:
            raise StoreError(f"{self.path / name} cannot be read: {e}") from None

    def metrics(self) -> pa.Table:
        return self.table("metrics.parquet")

    def trace(self) -> pa.Table:
        return self.table("trace.parquet")

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def table(self, name: str) -> pa.Table:
        """Read once. A run without this table (it has not ended) has an empty one."""
        if name not in self._tables:
            try:
                self._tables[name] = pq.read_table(self.path / name)
            except FileNotFoundError:
                if self.status in ENDED and name in ALWAYS:
                    raise StoreError(f"{self.path} has no {name}, and its run has ended: was it removed?") from None
                self._tables[name] = pa.table({})
            except (OSError, pa.ArrowException) as e:
                raise StoreError(f"{self.path / name} cannot be read: {str(e).splitlines()[0]}") from None
        return self._tables[name]

    @property
    def trace_end(self) -> float:
        """When the last gradient of the trace ended."""
        trace = self.trace()
        return float(column(trace, "time").max()) if trace.num_rows else 0.0

    def metric(self, name: str) -> NDArray[np.float64]:
        """A column of the metrics, with NaN where there is no value."""
        return column(self.metrics(), name)


def column(table: pa.Table, name: str) -> NDArray[np.float64]:
    """A column as floats, NaN where it is null or not there."""
    if name not in table.column_names or pa.types.is_null(table[name].type):
        return np.full(table.num_rows, np.nan)
    return np.asarray(table[name].cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def find(patterns: Iterable[str | Path]) -> list[RunFiles]:
    """The runs of folders and patterns; a folder that holds runs stands for all of them. Sorted, each once.

    A damaged run is an error where it is named; among others, it is left out with a warning.
    """
    paths: dict[Path, None] = {}
    patterns = list(patterns)
    named = {Path(pattern) for pattern in patterns}
    for pattern in patterns:
        found = _folders(str(pattern))
        if not found:
            if Path(pattern).exists():
                raise StoreError(f"{pattern} is not a run folder: it has no run.json")
            raise StoreError(f"no run at {pattern}")
        paths.update(dict.fromkeys(found))
    runs: list[RunFiles] = []
    for k, path in enumerate(paths):
        try:
            runs.append(RunFiles.open(path))
        except StoreError as e:
            if path in named or (k == len(paths) - 1 and not runs):
                raise
            warnings.warn(f"left out: {e}", OffbeatWarning, stacklevel=2)
    return runs


def _folders(pattern: str) -> Sequence[Path]:
    if (Path(pattern) / "run.json").exists():
        return [Path(pattern)]
    names = [pattern] if Path(pattern).is_dir() else sorted(glob(pattern, recursive=True))
    folders = {f.parent for name in names for f in _descriptions(Path(name))}
    return sorted(folders, key=lambda p: [_natural(part) for part in p.parts])


def _descriptions(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return path.rglob("run.json")
    return [path] if path.name == "run.json" else []


def _natural(name: str) -> tuple[str, int, str]:
    """asgd-2 before asgd-10."""
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    return stem, int(number or -1), name


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
    head = {"run": str(run.path), "status": run.status, "why": run.info.get("why", ""), "seed": run.seed}
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
