"""Recordings that are not ours: how long the steps of each worker took, from a profiler's trace or a table.

A file may come from anybody: it is opened as a plain file, bounded in bytes and values, and what it says is checked.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.units import format_size
from offbeat.folders import profiler_trace, time_columns
from offbeat.folders.limits import MOST_JSON, MOST_SECONDS
from offbeat.folders.opening import read_bytes
from offbeat.folders.steps import Steps

_GZIP = b"\x1f\x8b"
KINDS = (".csv", ".json", ".json.gz")


@dataclass(frozen=True)
class Recording:
    """The steps of some workers, from one file."""

    path: Path
    kind: str
    """"torch.profiler", "trace" or "table"."""
    workers: Sequence[Steps]


def is_recording(path: Path) -> bool:
    """Whether a path is meant as such a file, and not as the folder of a run."""
    return not path.is_dir() and path.name.endswith(KINDS)


def read_recording(path: Path, steps: str | None = None) -> Recording:
    """The file as steps by worker. `steps` is a pattern of the names of the slices that are steps, in a trace."""
    data = _bytes(path)
    try:
        if path.name.endswith(".csv"):
            if steps is not None:
                raise ConfigError(f"--steps is for traces; {path.name} is a table")
            kind, workers = "table", time_columns.read(data)
        else:
            kind, workers = profiler_trace.read(data, steps)
        for found in workers:
            _check(found)
    except ValueError as e:
        raise StoreError(f"{path} cannot be read: {e}") from None
    return Recording(path, kind, workers)


def _bytes(path: Path) -> bytes:
    """All of the file, unpacked; a link that was named is followed, to a plain file only."""
    try:
        real = path.resolve(strict=True)
        data = read_bytes(real.parent, real.name, MOST_JSON)
    except (FileNotFoundError, RuntimeError):
        raise StoreError(f"{path} is not there") from None
    if not data.startswith(_GZIP):
        return data
    try:
        unpacking = zlib.decompressobj(wbits=31)
        found = unpacking.decompress(data, MOST_JSON + 1)
    except zlib.error:
        raise StoreError(f"{path} cannot be read: it is damaged") from None
    if len(found) > MOST_JSON:
        raise StoreError(f"{path} cannot be read: unpacked it has more than {format_size(MOST_JSON)}")
    return found


def _check(found: Steps) -> None:
    for what, values in (("steps", found.seconds), ("starts", found.started)):
        if values is not None and not _within(values):
            raise ValueError(f"{what} of {found.who} must be seconds from 0 to {MOST_SECONDS:g}")


def _within(values: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(values).all() and (values >= 0).all() and (values <= MOST_SECONDS).all())
