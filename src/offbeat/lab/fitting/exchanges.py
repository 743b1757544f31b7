"""Latency, bandwidth, service and passes over shared memory, from what messages, sums and turns took."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from offbeat.lab.fitting.evidence import Evidence

_APART = 1.5  # sizes of messages, against latencies, that tell latency and bandwidth from each other


@dataclass(frozen=True)
class Exchanges:
    """What was found, and what could not be."""

    latency: float
    bandwidth: float
    service: float
    memory: float
    unknown: tuple[str, ...]


def fit_exchanges(evidence: Sequence[Evidence]) -> Exchanges:
    """A message takes latency + N / bandwidth, an all-reduce of W workers 2 (W - 1) of them with N / W bytes each."""
    unknown = []
    latency, per_byte, apart = _links(evidence)
    if latency is None:
        unknown.append("latency and bandwidth: no run has a server or sums among its workers")
    elif not apart:
        unknown.append("bandwidth: all messages are of one size, and what they take is in the latency")
    calls = sum(e.calls for e in evidence)
    if not calls:
        unknown.append("service: no run has a server")
    turns = [t for e in evidence for t in e.turns]
    if not turns:
        unknown.append("memory: no run shares a vector without a lock")
    return Exchanges(
        latency or 0.0,
        1 / per_byte if per_byte else inf,
        sum(e.served for e in evidence) / calls if calls else 0.0,
        float(np.mean(turns)) / 2 if turns else 0.0,
        tuple(unknown),
    )


def _links(evidence: Sequence[Evidence]) -> tuple[float | None, float, bool]:
    """Latency, seconds a byte, and whether the two could be told apart."""
    equations = []  # (how often the latency, how many bytes, seconds)
    for e in evidence:
        if len(e.ways):
            equations.append((1.0, float(e.nbytes), float(np.mean(e.ways))))
        if len(e.sums) and e.workers > 1:
            steps = 2.0 * (e.workers - 1)
            equations.append((steps, steps * e.nbytes / e.workers, float(np.mean(e.sums))))
    equations = [q for q in equations if q[2] > 0]
    if not equations:
        return None, 0.0, False
    sizes = [nbytes / count for count, nbytes, _ in equations]
    if max(sizes) < _APART * max(min(sizes), 1.0):
        return float(np.mean([seconds / count for count, _, seconds in equations])), 0.0, False
    found = nonnegative([q[:2] for q in equations], [q[2] for q in equations])
    return float(found[0]), float(found[1]), True


def nonnegative(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> NDArray[np.float64]:
    """Two numbers from 0 whose combinations come nearest to what is wanted, each relative to itself."""
    a = np.array(rows, np.float64) / np.array(wanted)[:, None]
    ones = np.ones(len(a))
    whole = np.linalg.lstsq(a, ones, rcond=None)[0]
    if (whole >= 0).all():
        return np.asarray(whole)
    best, least = np.zeros(2), inf
    for k in range(2):
        norm = float(a[:, k] @ a[:, k])
        alone = np.zeros(2)
        alone[k] = max(0.0, float(a[:, k] @ ones) / norm) if norm else 0.0
        left = float(((a @ alone - ones) ** 2).sum())
        if left < least:
            best, least = alone, left
    return best
