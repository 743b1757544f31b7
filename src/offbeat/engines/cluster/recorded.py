"""Recorded times of batches, one column a worker, played again in order and from the start when they are over."""

import csv
import re
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.units import parse_duration, shown
from offbeat.engines.cluster.distributions import FOREVER, Floats

MOST_BYTES = 256 * 2**20
"""Of a file of recorded times."""

_TRACE = re.compile(r"\s*trace\(\s*(.*?)\s*(?:,\s*([0-9a-f]{16})\s*)?\)\s*", re.DOTALL)


@dataclass(frozen=True)
class RecordedTimes:
    """`trace(times.csv)`: rows are batches, columns are workers, cells are seconds or times with a unit.

    `digest` is that of the times: a configuration means these and no others, and a file that has changed since is
    refused. The file is read when its times are first needed.
    """

    path: str
    digest: str
    _found: list[tuple[Floats, ...]] = field(default_factory=list, repr=False, compare=False, hash=False)

    @classmethod
    def read(cls, path: str) -> "RecordedTimes":
        columns = _columns(path)
        return cls(path, _digest(columns), [columns])

    @property
    def at_hand(self) -> bool:
        """Whether the file has been read."""
        return bool(self._found)

    @property
    def columns(self) -> tuple[Floats, ...]:
        if not self._found:
            columns = _columns(self.path)
            if (now := _digest(columns)) != self.digest:
                raise ConfigError(f"{self.path} has changed since: its times were {self.digest}, they are {now} now")
            self._found.append(columns)
        return self._found[0]

    @property
    def mean(self) -> float:
        return float(np.mean([column.mean() for column in self.columns]))

    def play(self, column: int, first: int, n: int) -> Floats:
        times = self.columns[column]
        return times[np.arange(first, first + n) % len(times)]

    def check_columns(self, workers: int) -> None:
        if len(self.columns) < workers:
            raise ConfigError(
                f"{self.path} has times of {len(self.columns)} workers, one in each column, but {workers} need them"
            )

    def __str__(self) -> str:
        return f"trace({self.path}, {self.digest})"


def parse_recorded(text: str, what: str) -> RecordedTimes | None:
    """None where the text speaks of something else."""
    match = _TRACE.fullmatch(text)
    if match is None:
        return None
    path, digest = match.groups()
    if not path:
        raise ConfigError(f"{what}: a recording is written like 'trace(times.csv)', got {shown(text)}")
    return RecordedTimes.read(path) if digest is None else RecordedTimes(path, digest)


def _columns(path: str) -> tuple[Floats, ...]:
    file = Path(path)
    try:
        if not file.is_file():
            raise ConfigError(f"compute: there is no file {path} with recorded times")
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ConfigError(
                f"compute: {path} is too large for recorded times, {size:,} bytes of at most {MOST_BYTES:,}"
            )
        rows = [row for row in csv.reader(file.read_text(encoding="utf-8").splitlines()) if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise ConfigError(
            f"compute: cannot read {path}: {getattr(e, 'strerror', None) or 'it is no CSV file'}"
        ) from None
    if rows and not any(map(_is_time, rows[0])):
        rows = rows[1:]  # names of the columns
    width = max(map(len, rows), default=0)
    columns: list[list[float]] = [[] for _ in range(width)]
    for number, row in enumerate(rows, 1):
        for k, cell in enumerate(row):
            if cell.strip():
                columns[k].append(min(parse_duration(cell, f"compute: {path}, row {number}, column {k + 1}"), FOREVER))
    if not width or not all(columns):
        raise ConfigError(f"compute: {path} must have at least one time in each column")
    return tuple(np.array(column) for column in columns)


def _is_time(cell: str) -> bool:
    try:
        parse_duration(cell)
    except ConfigError:
        return False
    return True


def _digest(columns: tuple[Floats, ...]) -> str:
    found = blake2b(digest_size=8)
    for column in columns:
        found.update(len(column).to_bytes(8, "little") + column.tobytes())
    return found.hexdigest()
