"""Latency, bandwidth, service and passes over shared memory, from what messages, sums and turns took."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from offbeat.engines.cluster.server import ServerMachine
from offbeat.lab.fitting.evidence import Evidence
from offbeat.lab.fitting.shared_link import fit_server_link
from offbeat.lab.fitting.transfers import alone

_APART = 1.5  # sizes of messages, against latencies, that tell latency and bandwidth from each other
_UNEVEN = 1.5  # links of workers that differ by more are not one


@dataclass(frozen=True)
class Exchanges:
    """What was found, and what could not be."""

    latency: float
    bandwidth: float
    service: float
    memory: float
    unknown: tuple[str, ...]
    server: ServerMachine | None = None
    """The server's own link; None where nothing shows that it has a limit."""


def fit_exchanges(evidence: Sequence[Evidence]) -> Exchanges:
    """A message takes latency + N / bandwidth, an all-reduce of W workers 2 (W - 1) of them with N / W bytes each.

    What does not tell bandwidth, and the time of service, is taken from runs of the first one's model where they have
    it: other gradients leave a processor's caches in another state.
    """
    unknown = []
    latency, per_byte, apart = _links(evidence)
    crossed = any(e.moved for e in evidence)
    if latency is None and crossed:
        unknown.append("latency and bandwidth: no message had the way to itself; what they take is the server's link")
    elif latency is None:
        unknown.append("latency and bandwidth: no run has a server or sums among its workers")
    elif not apart and crossed:  # between machines it is the bytes that take time
        size = next(e.nbytes for e in evidence if e.moved)
        latency, per_byte = 0.0, latency / size if size else 0.0
        unknown.append("latency: all messages are of one size, and what they take is in the bandwidth")
    elif not apart:
        unknown.append("bandwidth: all messages are of one size, and what they take is in the latency")
    bandwidth, server = 1 / per_byte if per_byte else inf, None
    if crossed:
        found = fit_server_link(evidence, latency or 0.0, bandwidth)
        unknown += [*found.unknown, *_uneven(evidence)]
        server = found.server
        if found.narrow:
            bandwidth = inf
            unknown.append("bandwidth: the server's link is the narrow one, and a worker's own at least as wide")
    heard = _first_model([e for e in evidence if e.calls], evidence)
    calls = sum(e.calls for e in heard)
    if not calls:
        unknown.append("service: no run has a server")
    turns = [t for e in evidence for t in e.turns]
    if not turns:
        unknown.append("memory: no run shares a vector without a lock")
    return Exchanges(
        latency or 0.0,
        bandwidth,
        sum(e.served for e in heard) / calls if calls else 0.0,
        float(np.mean(turns)) / 2 if turns else 0.0,
        tuple(unknown),
        server,
    )


def _uneven(evidence: Sequence[Evidence]) -> list[str]:
    """A cluster has one bandwidth for all workers: where their links differ, that is said."""
    taken: dict[int, list[float]] = {}
    for e in evidence:
        for t in alone(e.moved):
            taken.setdefault(t.worker, []).append(t.seconds / max(e.nbytes, 1))
    means = {worker: float(np.mean(each)) for worker, each in taken.items()}
    if len(means) < 2:
        return []
    quick, slow = min(means, key=lambda w: means[w]), max(means, key=lambda w: means[w])
    if means[slow] < _UNEVEN * means[quick]:
        return []
    ratio = means[slow] / means[quick]
    return [f"each worker's own link: a byte of worker {slow} takes {ratio:.1f} times as long as one of worker {quick}"]


def _links(evidence: Sequence[Evidence]) -> tuple[float | None, float, bool]:
    """Latency, seconds a byte, and whether the two could be told apart."""
    equations = _equations(evidence)
    if not equations:
        return None, 0.0, False
    sizes = [nbytes / count for count, nbytes, _ in equations]
    apart = max(sizes) >= _APART * max(min(sizes), 1.0)
    if apart:
        found = nonnegative([q[:2] for q in equations], [q[2] for q in equations])
        if found[1] > 0:
            return float(found[0]), float(found[1]), True
    mine = _equations(_first_model([e for e in evidence if _equations([e])], evidence))
    return float(np.mean([seconds / count for count, _, seconds in mine])), 0.0, apart


def _equations(evidence: Sequence[Evidence]) -> list[tuple[float, float, float]]:
    """(how often the latency, how many bytes, seconds)."""
    found = []
    for e in evidence:
        ways = [t.seconds for t in alone(e.moved)] if e.moved else e.ways
        if len(ways):
            found.append((1.0, float(e.nbytes), float(np.mean(ways))))
        if len(e.sums) and e.workers > 1:
            steps = 2.0 * (e.workers - 1)
            found.append((steps, steps * e.nbytes / e.workers, float(np.mean(e.sums))))
    return [q for q in found if q[2] > 0]


def _first_model(able: Sequence[Evidence], evidence: Sequence[Evidence]) -> Sequence[Evidence]:
    """Those of them that are of the first one's model; all of them where none is."""
    return [e for e in able if e.model == evidence[0].model] or able


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
