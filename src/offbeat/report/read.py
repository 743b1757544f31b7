"""Run folders as plain values: what reports are made of."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from offbeat.core.errors import StoreError


@dataclass(frozen=True)
class RunFiles:
    """What a folder says of its run."""

    path: Path
    info: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> "RunFiles":
        try:
            return cls(path, json.loads((path / "run.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise StoreError(f"{path} is not a run folder: it has no run.json") from None
        except (OSError, ValueError) as e:
            raise StoreError(f"{path / 'run.json'} cannot be read: {e}") from None

    @property
    def status(self) -> str:
        return str(self.info.get("status"))

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = self.info.get("summary", {})
        return summary

    def metrics(self) -> pa.Table:
        return self._table("metrics.parquet")

    def trace(self) -> pa.Table:
        return self._table("trace.parquet")

    def _table(self, name: str) -> pa.Table:
        try:
            return pq.read_table(self.path / name)
        except (OSError, pa.ArrowException) as e:
            raise StoreError(f"{self.path / name} cannot be read: {str(e).splitlines()[0]}") from None
