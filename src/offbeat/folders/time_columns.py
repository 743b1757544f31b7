"""Steps from a table (CSV): one column a worker, or one row a step with a column `worker`.

    0.101,0.093        worker,ms,samples
    0.099,0.101        0,101,64
    0.103,             1,93,64

Times are seconds unless they have a unit (`12ms`), or their column is called `ms` or `us`, or ends in `_ms` or `_us`.
"""

import csv
import io
from collections.abc import Sequence

import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.legible import legible
from offbeat.core.units import parse_duration
from offbeat.folders.limits import MOST_SECONDS, MOST_VALUES
from offbeat.folders.steps import Steps

_MOST_COLUMNS = 100_000
_TIMES = ("seconds", "time", "duration", "s", "ms", "us")
_SAMPLES = ("samples", "batch", "batch_size")


def read(data: bytes) -> list[Steps]:
    """The steps of each worker. ValueError says what is wrong, and in which line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    if data.count(b",") + data.count(b"\n") > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as e:
        raise ValueError(f"it is no table: {e}") from None
    if not rows:
        raise ValueError("it is empty")
    head = [cell.strip().lower() for cell in rows[0]]
    if len(head) > _MOST_COLUMNS:
        raise ValueError(f"it has more than {_MOST_COLUMNS:,} columns")
    if "worker" in head:
        return _one_row_a_step(head, rows[1:])
    named = any(_seconds(cell) is None for cell in rows[0] if cell.strip())
    names = [legible(cell.strip()[:60]) for cell in rows[0]] if named else [f"worker {k}" for k in range(len(head))]
    return _one_column_a_worker(names, [_unit(cell) for cell in head] if named else [1.0] * len(head), rows, int(named))


def _one_column_a_worker(
    names: Sequence[str], units: Sequence[float], rows: Sequence[Sequence[str]], first: int
) -> list[Steps]:
    found: list[list[float]] = [[] for _ in names]
    for at, row in enumerate(rows[first:], first + 1):
        if len(row) > len(names):
            raise ValueError(f"line {at} has {len(row)} columns, and the first one {len(names)}")
        for k, cell in enumerate(row):
            if cell.strip():
                found[k].append(_time(cell, units[k], at))
    if not all(found):
        raise ValueError(f"column {names[[*map(bool, found)].index(False)]!r} has no times")
    return [Steps(name, np.array(times)) for name, times in zip(names, found, strict=True)]


def _one_row_a_step(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Steps]:
    timed = [k for k, name in enumerate(head) if name in _TIMES or name.endswith(("_ms", "_us", "_seconds"))]
    if len(timed) != 1:
        raise ValueError(f"beside `worker` it needs one column of times, such as {', '.join(_TIMES)}")
    who, when = head.index("worker"), timed[0]
    sized = next((k for k, name in enumerate(head) if name in _SAMPLES), None)
    times: dict[str, list[float]] = {}
    samples: dict[str, list[int]] = {}
    for at, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise ValueError(f"line {at} has {len(row)} columns, and the first one {len(head)}")
        name = legible(row[who].strip()[:60])
        times.setdefault(name, []).append(_time(row[when], _unit(head[when]), at))
        if sized is not None:
            samples.setdefault(name, []).append(_count(row[sized], at))
    if not times:
        raise ValueError("it has no steps")
    order = sorted(times, key=lambda n: (0, int(n), "") if n.isdecimal() else (1, 0, n))
    return [
        Steps(
            f"worker {n}" if n.isdecimal() else n, np.array(times[n]), None, np.array(samples[n]) if samples else None
        )
        for n in order
    ]


def _unit(name: str) -> float:
    return 1e-3 if name == "ms" or name.endswith("_ms") else 1e-6 if name == "us" or name.endswith("_us") else 1.0


def _seconds(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        pass
    try:
        return parse_duration(cell.strip())
    except ConfigError:
        return None


def _time(cell: str, unit: float, line: int) -> float:
    seconds = _seconds(cell)
    if seconds is None or not 0 <= seconds * unit <= MOST_SECONDS:
        raise ValueError(f"line {line}: a time must be seconds from 0, or like '12ms', got {legible(cell[:40])!r}")
    return seconds * unit


def _count(cell: str, line: int) -> int:
    if not cell.strip().isdecimal() or not 1 <= int(cell[:18]) < 2**31:
        raise ValueError(f"line {line}: samples must be a whole number from 1, got {legible(cell[:40])!r}")
    return int(cell)
