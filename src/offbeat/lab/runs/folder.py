"""A run is a folder: run.json, trace.parquet, metrics.parquet, weights.safetensors, checkpoint.safetensors.

Beside them, where the task has a dataset, partition.json (who has which labels) and evaluation.json (scores by class).

Everything is written beside its place and renamed, so that a reader never sees half a file. The trace is written in
parts, one a checkpoint, because a killed writer of parquet leaves nothing readable; parts newer than the checkpoint
are dropped on resume, and all are merged at the end.
"""

import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from offbeat.core.bits import cpu_type
from offbeat.core.errors import StoreError
from offbeat.core.format import FORMAT, check_format, json_safe
from offbeat.core.trace import Row
from offbeat.lab.runs import made

_TYPES: Mapping[str, pa.DataType] = {
    "time": pa.float64(),
    "worker": pa.int32(),
    "source": pa.int32(),
    "draw": pa.int64(),
    "version_read": pa.int64(),
    "version_applied": pa.int64(),
    "staleness": pa.int64(),
    "gap": pa.float64(),
    "applied": pa.bool_(),
    "outcome": pa.string(),
    "loss": pa.float64(),
    "samples": pa.int32(),
    "started": pa.float64(),
    "computed": pa.float64(),
    "grad_norm": pa.float64(),
    "correct": pa.int32(),
}
SCHEMA = pa.schema([(name, _TYPES[name]) for name in Row._fields])
JOURNAL = pa.schema([("time", pa.float64()), ("what", pa.string()), ("worker", pa.int32()), ("number", pa.int64())])
UNFINISHED = ("running", "interrupted", "failed")


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
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def journal_table(entries: Sequence[tuple[Any, ...]]) -> pa.Table:
    """What a replay follows: who came when, and to what."""
    columns = list(zip(*entries, strict=True)) if entries else [()] * len(JOURNAL)
    return pa.table([pa.array(c, type=f.type) for c, f in zip(columns, JOURNAL, strict=True)], schema=JOURNAL)


def metrics_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends well, and vanishes when it does not."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
        with open(beside, "rb") as f:
            os.fsync(f.fileno())
        os.replace(beside, path)
    except OSError as e:
        raise StoreError(f"cannot write {path}: {e.strerror or e}") from None
    finally:
        beside.unlink(missing_ok=True)


class Folder:
    """A run folder, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: Any = None

    # -- holding it ---------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Makes the folder and locks it; the lock goes with the process, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "a+")  # noqa: SIM115  # held for the life of the run
        except FileExistsError:
            raise StoreError(f"cannot write to {self.path}: it is a file, and a run needs a folder") from None
        except OSError as e:
            raise StoreError(f"cannot write to {self.path}: {e.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"{self.path} is in use: another process is running it") from None
        made.refuse_links(self.path)

    def release(self) -> None:
        """Lets go of the folder; one in which nothing was begun is not left behind."""
        if self._lock is not None:
            if [p.name for p in self.path.iterdir()] == ["lock"]:
                (self.path / "lock").unlink()
                self.path.rmdir()
            self._lock.close()
            self._lock = None

    @property
    def running(self) -> bool:
        """Whether a live process holds it."""
        try:
            with open(self.path / "lock") as probe:
                fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    # -- run.json -----------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return (self.path / "run.json").exists()

    def read(self) -> dict[str, Any]:
        try:
            info: dict[str, Any] = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise StoreError(f"{self.path} is not a run folder: it has no run.json") from None
        except OSError as e:
            raise StoreError(f"cannot read {self.path / 'run.json'}: {e.strerror}") from None
        except ValueError:
            raise StoreError(f"{self.path / 'run.json'} is damaged: it is not JSON") from None
        if not isinstance(info, dict):
            raise StoreError(f"{self.path / 'run.json'} is not a run's description")
        check_format(self.path, info.get("format"))
        return info

    def write(self, info: Mapping[str, Any]) -> None:
        with replacing(self.path / "run.json") as beside:
            beside.write_text(json.dumps({"format": FORMAT, **info}, indent=2) + "\n", encoding="utf-8")

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        with replacing(self.path / name) as beside:
            beside.write_text(json.dumps(json_safe(values), allow_nan=False) + "\n", encoding="utf-8")

    def write_text(self, name: str, text: str) -> None:
        with replacing(self.path / name) as beside:
            beside.write_text(text, encoding="utf-8")

    # -- tables and weights -------------------------------------------------------------------------------------

    def write_table(self, name: str, table: pa.Table) -> None:
        with replacing(self.path / name) as beside:
            pq.write_table(table, beside, compression="zstd")

    def read_table(self, name: str) -> pa.Table:
        try:
            return pq.read_table(self.path / name)
        except FileNotFoundError:
            ended = self.exists() and self.read().get("status") not in UNFINISHED
            why = "and its run has ended: was it removed?" if ended else "the run has not ended"
            raise StoreError(f"{self.path} has no {name}{',' if ended else ':'} {why}") from None
        except (OSError, pa.ArrowException) as e:
            raise StoreError(f"{self.path / name} cannot be read: {str(e).splitlines()[0]}") from None

    def write_part(
        self, number: int, rows: Sequence[tuple[Any, ...]], journal: Sequence[tuple[Any, ...]] | None = None
    ) -> None:
        (self.path / "parts").mkdir(exist_ok=True)
        self.write_table(f"parts/trace-{number:06d}.parquet", trace_table(rows))
        if journal is not None:
            self.write_table(f"parts/arrivals-{number:06d}.parquet", journal_table(journal))

    def drop_parts(self, keep: int) -> None:
        """Removes the parts that are newer than the checkpoint; the older ones must be there."""
        for number in range(keep):
            if not (self.path / f"parts/trace-{number:06d}.parquet").exists():
                raise StoreError(f"{self.path} has lost parts/trace-{number:06d}.parquet, a piece of its trace")
        made.drop_parts(self.path, keep)

    def merge_parts(
        self, count: int, rows: Sequence[tuple[Any, ...]], journal: Sequence[tuple[Any, ...]] | None = None
    ) -> None:
        """trace.parquet = the parts and the last rows, streamed: a long trace need not fit in memory twice."""
        self._merge("trace", count, trace_table(rows))
        if journal is not None:
            self._merge("arrivals", count, journal_table(journal))

    def read_parts(self, count: int) -> Iterator[pa.Table]:
        """The pieces of the trace so far, in order."""
        return (self.read_table(f"parts/trace-{number:06d}.parquet") for number in range(count))

    def _merge(self, name: str, count: int, last: pa.Table) -> None:
        with (
            replacing(self.path / f"{name}.parquet") as beside,
            pq.ParquetWriter(beside, last.schema, compression="zstd") as writer,
        ):
            for number in range(count):
                writer.write_table(self.read_table(f"parts/{name}-{number:06d}.parquet"))
            writer.write_table(last)

    def write_tensors(self, name: str, tensors: Mapping[str, torch.Tensor], note: str | None = None) -> None:
        """A safetensors file; `note` is JSON kept in its metadata."""
        own = {k: t.detach().to("cpu", copy=True).contiguous() for k, t in tensors.items()}
        (self.path / name).parent.mkdir(exist_ok=True)
        with replacing(self.path / name) as beside:
            save_file(own, beside, metadata={"offbeat": note or "{}"})

    def read_tensors(self, name: str) -> tuple[dict[str, torch.Tensor], Any]:
        path = self.path / name
        try:
            with safe_open(path, framework="pt") as f:
                return {k: f.get_tensor(k) for k in f.keys()}, json.loads(f.metadata()["offbeat"])  # noqa: SIM118
        except FileNotFoundError:
            raise StoreError(f"{self.path} has no {name}") from None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as e:
            raise StoreError(f"{path} cannot be read: {(str(e) or 'no note of ours').splitlines()[0]}") from None

    def clear(self) -> None:
        """Forgets an earlier run of this folder; only files that a run makes."""
        made.clear(self.path)

    def tidy(self) -> None:
        """What only an unfinished run needs."""
        made.tidy(self.path)
