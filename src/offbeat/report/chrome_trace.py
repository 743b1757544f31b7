"""The timeline in Chrome's trace format, which Perfetto (ui.perfetto.dev) opens.

One process a run, one thread a worker and one for the server. A gradient is a slice on its worker; where it was applied
is an instant on the server, and a flow joins the two. Times are the run's own, in microseconds.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offbeat.core.errors import StoreError
from offbeat.core.trace import RECEIVED
from offbeat.folders.run_files import RunFiles

Event = dict[str, Any]
_SERVER = 0
_CHUNK = 50_000


def events(run: RunFiles, pid: int = 1) -> Iterator[Event]:
    """The metadata, then every row of the trace."""
    yield _named("process_name", pid, 0, f"{run.solver} on {run.task} ({run.clock} time)")
    yield _named("thread_name", pid, _SERVER, "server")
    for w in range(run.workers):
        yield _named("thread_name", pid, w + 1, f"worker {w}")
    number = 0
    for batch in run.trace().to_batches(_CHUNK):
        for row in batch.to_pylist():
            number += 1
            yield from _gradient(row, pid, number)


def _named(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


def _gradient(row: dict[str, Any], pid: int, number: int) -> Iterator[Event]:
    tid = row["worker"] + 1
    told = {k: row[k] for k in ("source", "draw", "version_read", "version_applied", "staleness", "loss", "samples")}
    end = {"pid": pid, "ts": _us(row["time"])}
    if row["outcome"] == RECEIVED:
        yield {"ph": "i", "s": "t", "cat": "received", "name": _tau(row), "tid": tid, **end, "args": told}
        return
    start, length = _us(row["started"]), _us(row["computed"] - row["started"])
    slice_ = {"ph": "X", "cat": "gradient", "name": f"batch {row['draw']}", "pid": pid, "tid": tid}
    yield {**slice_, "ts": start, "dur": length, "args": {**told, "outcome": row["outcome"]}}
    if not row["applied"]:
        return
    yield {"ph": "i", "s": "t", "cat": "update", "name": _tau(row), "tid": _SERVER, **end, "args": told}
    flow = {"cat": "push", "name": "push", "id": number, "pid": pid}
    yield {**flow, "ph": "s", "ts": _us(row["computed"]), "tid": tid}
    yield {**flow, "ph": "f", "bp": "e", "ts": end["ts"], "tid": _SERVER}


def _tau(row: dict[str, Any]) -> str:
    return "applied" if row["staleness"] is None else f"τ = {row['staleness']}"


def _us(value: float) -> float:
    return round(value * 1e6, 3)


def write(runs: list[RunFiles], path: Path) -> Path:
    """Streamed: a long trace need not fit into memory as text."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            first = True
            for pid, run in enumerate(runs, 1):
                for event in events(run, pid):
                    out.write(("" if first else ",\n") + json.dumps(event))
                    first = False
            out.write("\n]}\n")
    except OSError as e:
        raise StoreError(f"cannot write {path}: {e.strerror}") from None
    return path
