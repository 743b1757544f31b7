"""A run's folder while it runs: held by one process, written so that a reader never sees half a file.

run.json, trace.parquet, metrics.parquet, weights.safetensors, checkpoint.safetensors; beside them, where the task has a
dataset, partition.json (who has which labels) and evaluation.json (scores by class).

The trace is written in parts, one a checkpoint, because a killed writer of parquet leaves nothing readable; parts newer
than the checkpoint are dropped on resume, and all are merged at the end. How folders are read is in `offbeat.folders`.
"""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save

from offbeat.core.bits import cpu_type
from offbeat.core.errors import StoreError
from offbeat.core.format import FORMAT, json_safe
from offbeat.folders import made
from offbeat.folders.description import Description, read_description
from offbeat.folders.limits import MOST_WHY
from offbeat.folders.opening import there
from offbeat.folders.parquet import ARRIVALS, TRACE, read_arrivals, read_part_of_trace
from offbeat.folders.writing import write_inside
from offbeat.lab.runs.holding import Hold


def versions() -> dict[str, str]:
    """Versions of everything that can change the bits."""
    return {
        "offbeat": version("offbeat"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": cpu_type(),
    }


def trace_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return _table(rows, TRACE)


def arrivals_table(entries: Sequence[tuple[Any, ...]]) -> pa.Table:
    return _table(entries, ARRIVALS)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def metrics_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


class Folder:
    """A run folder, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hold = Hold(path)

    def acquire(self) -> None:
        """Makes the folder and locks it; the lock goes with the process, however it ends."""
        self._hold.take()
        try:
            made.refuse_links(self.path)
            if not self.exists():
                made.refuse_others(self.path)
        except StoreError:
            self._hold.release()
            raise

    def release(self) -> None:
        """Lets go of the folder; one in which nothing was begun is not left behind."""
        self._hold.release()

    # -- run.json -----------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return there(self.path, "run.json")

    def read(self) -> Description:
        return read_description(self.path)

    def begin(self, info: Mapping[str, Any]) -> None:
        """A new run, whatever was here. Killed at any point of this, it is the old run or the new one."""
        self._hold.refuse_another()
        if anew := self.exists():
            made.drop_checkpoint(self.path)
        self.write(info)
        if anew:
            made.clear(self.path)

    def write(self, info: Mapping[str, Any]) -> None:
        """run.json, which says what all the other files are worth."""
        short = {**info, "why": str(info.get("why", ""))[:MOST_WHY]}
        text = json.dumps(json_safe({"format": FORMAT, **short}), indent=2, allow_nan=False)
        self.write_text("run.json", text + "\n")

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(json_safe(values), allow_nan=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        self._write(name, lambda file: file.write(text.encode("utf-8", "backslashreplace")))

    # -- tables and weights -------------------------------------------------------------------------------------

    def write_table(self, name: str, table: pa.Table) -> None:
        self._write(name, lambda file: pq.write_table(table, file, compression="zstd"))

    def write_part(
        self, number: int, rows: Sequence[tuple[Any, ...]], journal: Sequence[tuple[Any, ...]] | None = None
    ) -> None:
        self.write_table(_part("trace", number), trace_table(rows))
        if journal is not None:
            self.write_table(_part("arrivals", number), arrivals_table(journal))

    def go_back(self, parts: int, saves: int) -> None:
        """Removes the parts and snapshots that are newer than the checkpoint; the older parts must be there."""
        for number in range(parts):
            if not there(self.path, _part("trace", number)):
                raise StoreError(f"{self.path} has lost {_part('trace', number)}, a piece of its trace")
        self._hold.refuse_another()
        made.drop_parts(self.path, parts)
        made.drop_saves(self.path, saves)

    def merge_parts(
        self, count: int, rows: Sequence[tuple[Any, ...]], journal: Sequence[tuple[Any, ...]] | None = None
    ) -> None:
        """trace.parquet = the parts and the last rows, streamed: a long trace need not fit in memory twice."""
        self._merge("trace", self.read_parts(count), trace_table(rows))
        if journal is not None:
            parts = (read_arrivals(self.path, _part("arrivals", number)) for number in range(count))
            self._merge("arrivals", parts, arrivals_table(journal))

    def read_parts(self, count: int) -> Iterator[pa.Table]:
        """The pieces of the trace so far, in order."""
        return (read_part_of_trace(self.path, _part("trace", number)) for number in range(count))

    def _merge(self, name: str, parts: Iterator[pa.Table], last: pa.Table) -> None:
        def write(file: BinaryIO) -> None:
            with pq.ParquetWriter(file, last.schema, compression="zstd") as writer:
                for part in parts:
                    writer.write_table(part)
                writer.write_table(last)

        self._write(f"{name}.parquet", write)

    def write_tensors(self, name: str, tensors: Mapping[str, torch.Tensor], note: str | None = None) -> None:
        """A safetensors file; `note` is JSON kept in its metadata."""
        own = {k: t.detach().to("cpu", copy=True).contiguous() for k, t in tensors.items()}
        # Not by save_file: killed, it leaves a file of a name of its own, and what it leaves only its owner can read.
        self._write(name, lambda file: file.write(save(own, metadata={"offbeat": note or "{}"})))

    def _write(self, name: str, write: Any) -> None:
        self._hold.refuse_another()
        write_inside(self.path, name, write)

    def tidy(self) -> None:
        """Deletes what only an unfinished run needs."""
        self._hold.refuse_another()
        made.tidy(self.path)


def _part(name: str, number: int) -> str:
    return f"parts/{name}-{number:06d}.parquet"
