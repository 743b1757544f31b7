"""Two runs held against each other: configuration, the first gradient that differs, outcomes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offbeat.folders.run_files import RunFiles
from offbeat.report.read import flat

_TIMES = ("time", "started", "computed")
_SCORES = ("status", "loss", "accuracy", "best", "mean_staleness", "max_staleness", "idle_share", "params_sha256")
_OUTCOMES = (*_SCORES, "updates", "samples", "virtual_seconds", "time_to_target", "bytes")


@dataclass(frozen=True)
class Diff:
    """What differs; empty where nothing does."""

    config: dict[str, tuple[Any, Any]]
    outcomes: dict[str, tuple[Any, Any]]
    row: int | None
    """The first row of the traces that differs."""
    columns: dict[str, tuple[Any, Any]]
    """That row's differing columns."""
    timed: bool
    """Whether times were compared too; wall times never are."""

    @property
    def same(self) -> bool:
        return not self.config and not self.outcomes and self.row is None


def diff(a: RunFiles, b: RunFiles) -> Diff:
    timed = a.clock == b.clock == "virtual"
    row, columns = _first_difference(a.trace(), b.trace(), timed)
    mine, theirs = ({**r.summary, "status": r.status} for r in (a, b))
    if not timed:
        mine, theirs = ({k: v for k, v in s.items() if k != "virtual_seconds"} for s in (mine, theirs))
    return Diff(
        config=_changes(flat(a.config), flat(b.config)),
        outcomes={k: v for k, v in _changes(mine, theirs).items() if k in _OUTCOMES},
        row=row,
        columns=columns,
        timed=timed,
    )


def _changes(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = dict.fromkeys([*a, *b])
    return {k: (a.get(k), b.get(k)) for k in keys if a.get(k) != b.get(k)}


def _first_difference(a: pa.Table, b: pa.Table, timed: bool) -> tuple[int | None, dict[str, tuple[Any, Any]]]:
    """Column by column over the rows that both have; then the shorter one's end."""
    shared = min(a.num_rows, b.num_rows)
    names = [n for n in a.column_names if n in b.column_names and (timed or n not in _TIMES)]
    first = shared
    for name in names:
        if shared:
            different = _unequal(a[name].slice(0, first), b[name].slice(0, first))
            found = np.flatnonzero(different)
            first = int(found[0]) if len(found) else first
    if first == shared and a.num_rows == b.num_rows:
        return None, {}
    rows = [t.slice(first, 1).to_pylist() for t in (a, b)]
    mine, theirs = (r[0] if r else {} for r in rows)
    return first, {n: (mine.get(n), theirs.get(n)) for n in names if mine.get(n) != theirs.get(n)}


def _unequal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> Any:
    """Where two columns differ; two nulls are the same, a null and a value are not."""
    values = pc.fill_null(pc.not_equal(a, b), False)
    holes = pc.xor(pc.is_null(a), pc.is_null(b))
    return pc.or_(values, holes).to_numpy(zero_copy_only=False)
