"""Rows of the trace through shared memory: no message, no lock, nothing lost with the process that made them.

Two kinds of rings: of each worker, which announces what it did, read by the server; and of the server, which writes
down what it did before it answers anybody, read by the control.
"""

import time
from collections.abc import Callable, Iterator
from math import nan
from typing import Any

from offbeat.core.trace import APPLIED, CANCELLED, IN_FLIGHT, LOST, RECEIVED, REFUSED, Row
from offbeat.engines.local.arena import KEPT_RING, RECORD, RING, Arena
from offbeat.engines.real.messages import Transaction

ROW, STEPS, ENTRY, COMMIT = 0.0, 1.0, 2.0, 3.0
_OUTCOMES = (APPLIED, REFUSED, LOST, CANCELLED, IN_FLIGHT, RECEIVED)
_WHATS = ("begin", "join", "call", "work", "cancelled", "lost")
_OUTCOME = Row._fields.index("outcome")
_WHOLE = frozenset(Row._fields.index(n) for n in ("worker", "source", "draw", "version_read", "version_applied"))
_WHOLE |= {Row._fields.index(n) for n in ("staleness", "samples", "correct")}
_APPLIED = Row._fields.index("applied")
Record = list[float]
"""(kind, which of the values are None, values): numbers only, as many as a ring has columns."""


def of_row(row: tuple[Any, ...]) -> Record:
    """A row as numbers. What is None has its bit set, because a loss may be no number, too."""
    missing = 0
    values = []
    for k, value in enumerate(row):
        if value is None:
            missing |= 1 << k
            values.append(nan)
        elif k == _OUTCOME:
            values.append(float(_OUTCOMES.index(value)))
        else:
            values.append(float(value))
    return [ROW, float(missing), *values]


def to_row(record: Record) -> tuple[Any, ...]:
    missing = int(record[1])
    values: list[Any] = list(record[2:])
    for k in range(len(values)):
        if missing >> k & 1:
            values[k] = None
        elif k in _WHOLE:
            values[k] = int(values[k])
    values[_OUTCOME], values[_APPLIED] = _OUTCOMES[int(values[_OUTCOME])], bool(values[_APPLIED])
    return tuple(values)


def _padded(kind: float, *values: float) -> Record:
    return [kind, *values, *[nan] * (RECORD - 1 - len(values))]


def announce(arena: Arena, i: int, rows: list[tuple[Any, ...]], steps: int) -> None:
    """By worker i. Waits while the server is too far behind, which ends with the server."""
    records = [of_row(row) for row in rows]
    if steps:
        records.append(_padded(STEPS, float(steps)))
    for record in records:
        while arena.head[i] - arena.tail[i] >= RING:
            time.sleep(0.001)
        arena.rings[i, arena.head[i] % RING] = record
        arena.head[i] += 1


def announced(arena: Arena) -> tuple[list[tuple[Any, ...]], int]:
    """By the server: rows and steps that are new, in the order of time."""
    rows: list[tuple[Any, ...]] = []
    steps = 0
    for i in range(arena.shape.workers):
        tail, head = int(arena.tail[i]), int(arena.head[i])
        for k in range(tail, head):
            record = arena.rings[i, k % RING].tolist()
            if record[0] == STEPS:
                steps += int(record[1])
            else:
                rows.append(to_row(record))
        arena.tail[i] = head
    rows.sort(key=lambda row: row[:2])  # stable: what a worker says at one time stays in order
    return rows, steps


def forget(arena: Arena) -> None:
    """Before a new server: what nobody has read of the old one's time is not read any more."""
    arena.tail[:] = arena.head
    arena.unread[:] = 0
    arena.kept_tail[0] = arena.kept_head[0]


def keep(arena: Arena, t: Transaction) -> None:
    """By the server: a transaction. It counts when its last record, the commit, is there."""
    for row in t.rows:
        _put(arena, of_row(row))
    if t.steps:
        _put(arena, _padded(STEPS, float(t.steps)))
    for time_, what, worker, number in t.journal:
        _put(arena, _padded(ENTRY, time_, float(_WHATS.index(what)), float(worker), float(number)))
    _put(arena, _padded(COMMIT, t.now, float(t.bytes), t.queued, t.served))


def _put(arena: Arena, record: Record) -> None:
    """Waits while the control is too far behind, which ends with the control."""
    while arena.kept_head[0] - arena.kept_tail[0] >= KEPT_RING:
        time.sleep(0.001)
    arena.kept_ring[arena.kept_head[0] % KEPT_RING] = record
    arena.kept_head[0] += 1


class Keeper:
    """By the control: transactions, as their last records come."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._begin()

    def _begin(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._steps = 0
        self._journal: list[tuple[float, str, int, int]] = []

    def committed(self) -> Iterator[Transaction]:
        arena = self._arena
        tail, head = int(arena.kept_tail[0]), int(arena.kept_head[0])
        takers: dict[float, Callable[[Record], None]] = {ROW: self._row, STEPS: self._step, ENTRY: self._entry}
        for k in range(tail, head):
            record = arena.kept_ring[k % KEPT_RING].tolist()
            arena.kept_tail[0] = k + 1
            if record[0] == COMMIT:
                now, nbytes, queued, served = record[1:5]
                yield Transaction(now, self._rows, self._steps, self._journal, int(nbytes), queued, served)
                self._begin()
            else:
                takers[record[0]](record)

    def _row(self, record: Record) -> None:
        self._rows.append(to_row(record))

    def _step(self, record: Record) -> None:
        self._steps += int(record[1])

    def _entry(self, record: Record) -> None:
        time_, what, worker, number = record[1:5]
        self._journal.append((time_, _WHATS[int(what)], int(worker), int(number)))
