"""Announcements of workers, through shared memory: no message, no lock, nothing lost with the worker that made them."""

import time
from collections.abc import Iterator
from math import isnan, nan
from typing import Any, NamedTuple

from offbeat.core.effects import Gradient
from offbeat.engines.local.memory import RING, Arena

APPLIED_ROW, RECEIVED_ROW, STEP = 0.0, 1.0, 2.0


class Record(NamedTuple):
    """One announcement. Numbers only; what does not apply is not a number."""

    kind: float
    time: float
    source: float = nan
    draw: float = nan
    read: float = nan
    version: float = nan
    staleness: float = nan
    gap: float = nan
    loss: float = nan
    samples: float = nan
    started: float = nan
    computed: float = nan
    norm: float = nan
    correct: float = nan
    work: float = nan
    spare: float = nan


def of_gradient(kind: float, now: float, g: Gradient, version: Any, staleness: Any, gap: Any) -> Record:
    numbers = (g.source, g.draw, g.version, version, staleness, gap, g.loss, g.samples, g.started, g.computed)
    values = (*numbers, g.norm, g.correct, g.work)
    return Record(kind, now, *(nan if v is None else float(v) for v in values))


def write(arena: Arena, i: int, record: Record) -> None:
    """By worker i. Waits while the server is too far behind, which ends with the server."""
    while arena.head[i] - arena.tail[i] >= RING:
        time.sleep(0.001)
    arena.rings[i, arena.head[i] % RING] = record
    arena.head[i] += 1


def read(arena: Arena) -> Iterator[tuple[int, Record]]:
    """By the server: what is new, in the order of time."""
    found: list[tuple[float, int, Record]] = []
    for i in range(arena.shape.workers):
        tail, head = int(arena.tail[i]), int(arena.head[i])
        for k in range(tail, head):
            record = Record(*arena.rings[i, k % RING].tolist())
            found.append((record.time, i, record))
        arena.tail[i] = head
    found.sort(key=lambda f: f[:2])  # stable: what a worker says at one time stays in order
    for _, i, record in found:
        yield i, record


def whole(value: float) -> int | None:
    return None if isnan(value) else int(value)


def real(value: float) -> float | None:
    return None if isnan(value) else value
