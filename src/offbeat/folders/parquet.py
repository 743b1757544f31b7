"""Tables of a folder, as tables that one can rely on: known columns of known types, nothing missing or absurd."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from offbeat.core.errors import StoreError
from offbeat.core.legible import legible
from offbeat.core.shares import ENTRIES
from offbeat.core.trace import APPLIED, CANCELLED, IN_FLIGHT, LOST, RECEIVED, REFUSED, Row
from offbeat.core.units import format_size
from offbeat.folders.limits import (
    MOST_COLUMNS,
    MOST_EXACT,
    MOST_NAME,
    MOST_PACKED,
    MOST_SECONDS,
    MOST_TEXT,
    MOST_WORKERS,
    SMALL,
    room,
)
from offbeat.folders.opening import opened

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
TRACE = pa.schema([(name, _TYPES[name]) for name in Row._fields])
ARRIVALS = pa.schema([("time", pa.float64()), ("what", pa.string()), ("worker", pa.int32()), ("number", pa.int64())])
_OUTCOMES = (APPLIED, REFUSED, LOST, CANCELLED, IN_FLIGHT, RECEIVED)
_HAPPENINGS = ("begin", "join", "lost", "work", "call", "cancelled", *ENTRIES)
_WIDTH = 8
"""Bytes of one value in memory."""


def read_trace(folder: Path) -> pa.Table:
    """One row a gradient. FileNotFoundError where there is none."""
    return _read(folder, "trace.parquet", _trace)


def read_part_of_trace(folder: Path, name: str) -> pa.Table:
    """Some rows of it, of a run on its way: those before them count the draws, too."""
    return _read(folder, name, _rows)


def read_arrivals(folder: Path, name: str = "arrivals.parquet") -> pa.Table:
    """What a replay follows: who came when, and to what."""
    return _read(folder, name, _arrivals)


def read_numbers(folder: Path, name: str, *needed: str) -> pa.Table:
    """A table of numbers: metrics, diagnostics, a landscape's grid. The columns that are needed have no holes."""
    return _read(folder, name, lambda table: _numbers(table, needed))


def read_results(folder: Path, name: str = "results.parquet") -> pa.Table:
    """A sweep's table: its keys, the seed, outcomes; numbers and texts."""
    return _read(folder, name, _results)


def _read(folder: Path, name: str, check: Callable[[pa.Table], pa.Table]) -> pa.Table:
    path = folder / name
    with opened(folder, name, room()) as file:
        try:
            size = file.seek(0, 2)
            file.seek(0)
            with pq.ParquetFile(file) as parquet:
                _check_size(parquet.metadata, size)
                _check_columns(parquet.schema_arrow)
                table = parquet.read()
            table.validate(full=True)
            return check(table.replace_schema_metadata(None))
        except (OSError, pa.ArrowException, ValueError, TypeError, KeyError, MemoryError, OverflowError) as e:
            reason = legible(str(e).splitlines()[0] if str(e) else type(e).__name__)
            raise StoreError(f"{path} cannot be read: {reason[:300]}") from None


def _check_size(about: Any, size: int) -> None:
    """Before anything is read: a few bytes may claim to be billions of rows."""
    claimed = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    needs = max(claimed, about.num_rows * about.num_columns * _WIDTH)
    if about.num_rows < 0 or needs > max(SMALL, MOST_PACKED * size):
        raise ValueError(f"{format_size(size)} claim to be {about.num_rows:,} rows")
    if needs > max(SMALL, room()):
        raise ValueError(f"{about.num_rows:,} rows do not fit in memory")


def _check_columns(schema: pa.Schema) -> None:
    names = schema.names
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"it has {len(names):,} columns")
    if len(set(names)) < len(names):
        raise ValueError("two of its columns have one name")
    for field in schema:
        if len(field.name) > MOST_NAME or legible(field.name) != field.name:
            raise ValueError(f"a column is called {legible(field.name[:100])!r}")
        kind = field.type
        plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_null)
        if not any(test(kind) for test in plain):
            raise ValueError(f"column {field.name!r} is of the type {legible(kind)[:100]}")


def _trace(table: pa.Table) -> pa.Table:
    table = _rows(table)
    # Every version and every draw has its gradient: numbers beyond all of them would ask for memory, and mean nothing.
    most = 1000 + 100 * table.num_rows
    _within(table, "draw", -1, most)
    _within(table, "staleness", -most, most)
    return table


def _rows(table: pa.Table) -> pa.Table:
    table = _as(table, TRACE, {"gap", "grad_norm", "correct"})
    _whole(table, "time", "worker", "source", "applied", "outcome", "samples", "started", "computed")
    for name in ("time", "started", "computed"):
        _within(table, name, 0, MOST_SECONDS)
    for name in ("worker", "source"):
        _within(table, name, 0, MOST_WORKERS - 1)
    for name in ("samples", "version_read", "version_applied", "draw"):
        _within(table, name, -1, MOST_EXACT)
    _within(table, "staleness", -MOST_EXACT, MOST_EXACT)
    # Some that were lost are less than 0 in runs of older versions, on a shared vector.
    _within(table.filter(table["applied"]), "staleness", 0, MOST_EXACT)
    _among(table, "outcome", _OUTCOMES)
    return table


def _arrivals(table: pa.Table) -> pa.Table:
    table = _as(table, ARRIVALS)
    _whole(table, "time", "what", "worker")
    _within(table, "time", 0, MOST_SECONDS)
    _within(table, "worker", 0, MOST_WORKERS - 1)
    _within(table, "number", 0, MOST_EXACT)
    _among(table, "what", _HAPPENINGS)
    return table


def _numbers(table: pa.Table, needed: tuple[str, ...]) -> pa.Table:
    for name in needed:
        if name not in table.column_names:
            raise ValueError(f"it has no column {name!r}")
    for field in table.schema:
        if pa.types.is_string(field.type):
            raise ValueError(f"column {field.name!r} holds texts")
    _whole(table, *needed)
    if "time" in table.column_names:
        _within(table, "time", 0, MOST_SECONDS)
    for field in table.schema:
        if field.name in ("samples", "updates"):
            _within(table, field.name, 0, MOST_EXACT)
        elif pa.types.is_integer(field.type):
            _within(table, field.name, -MOST_EXACT, MOST_EXACT)
    return table


def _results(table: pa.Table) -> pa.Table:
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = [None if v is None else legible(v[:MOST_TEXT]) for v in table[field.name].to_pylist()]
            table = table.set_column(i, field.name, pa.array(texts, pa.string()))
    return table


def _as(table: pa.Table, schema: pa.Schema, younger: set[str] = frozenset()) -> pa.Table:  # type: ignore[assignment]
    """Exactly these columns, of these types; a younger one that is not there is empty."""
    columns = []
    for field in schema:
        if field.name in table.column_names:
            try:
                columns.append(table[field.name].cast(field.type))
            except pa.ArrowException:
                raise ValueError(f"column {field.name!r} is not of the type {field.type}") from None
        elif field.name in younger:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            raise ValueError(f"it has no column {field.name!r}")
    return pa.table(columns, schema=schema)


def _whole(table: pa.Table, *names: str) -> None:
    for name in names:
        if table[name].null_count:
            raise ValueError(f"column {name!r} has holes")


def _within(table: pa.Table, name: str, low: float, high: float) -> None:
    """All its numbers; NaN lies nowhere."""
    column = table[name]
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise ValueError(f"column {name!r} holds what is not a number")
    found = pc.min_max(column).as_py()
    if found["min"] is not None and not low <= found["min"] <= found["max"] <= high:
        raise ValueError(f"column {name!r} goes from {found['min']:g} to {found['max']:g}, out of all bounds")


def _among(table: pa.Table, name: str, known: tuple[str, ...]) -> None:
    for value in pc.unique(table[name]).to_pylist():
        if value not in known:
            raise ValueError(f"column {name!r} holds {legible(value[:100])!r}")
