"""The server's own link, from messages that met on it.

Every message of the runs sets out again, at the moment when it did, over a link that is tried; what it would take there
is compared with what it took. So a link is found by what happens to messages that go together, and it shows whether
they go one after another or at once.
"""

from collections.abc import Callable, Sequence
from math import exp, inf, log, sqrt
from typing import NamedTuple, get_args

import numpy as np

from offbeat.core.units import format_rate
from offbeat.engines.cluster.server import ONE_SERVER, ServerMachine, Sharing
from offbeat.engines.sim.fair_share import FairShare
from offbeat.engines.sim.ways import in_turn
from offbeat.lab.fitting.evidence import Evidence
from offbeat.lab.fitting.transfers import most_at_once

_EXPLAINED = 0.02  # an error of messages below this leaves nothing to explain
_BETTER = 0.9  # of the error without it: a link that explains no more than this is not there
_SCATTERED = 0.15  # with more error than this, messages tell nothing about a link that was never full
_ALIKE = 1.1  # two ways of sharing whose errors are nearer than this cannot be told apart
_NARROWER = 1.15  # a server's link less than so many times as wide as one message alone is the narrow one
_TRIED = 17  # widths, evenly spaced in logarithms, before the best is looked at closely
_CLOSELY = 12  # steps of the closer look
_GOLDEN = (sqrt(5) - 1) / 2


class ServerLinkFit(NamedTuple):
    """What was found, and what could not be."""

    server: ServerMachine | None
    """None where nothing shows that it has a limit."""
    narrow: bool
    """A message alone is as fast as the server's link allows: of the workers' own it says only that they are wider."""
    unknown: tuple[str, ...]


def fit_server_link(evidence: Sequence[Evidence], latency: float, own: float) -> ServerLinkFit:
    """`own`: bytes a second of a message that has the way to itself."""
    runs = [e for e in evidence if e.moved and e.nbytes]
    together = max((most_at_once(e.moved) for e in runs), default=0)
    if together < 2:
        return ServerLinkFit(None, False, ("server.bandwidth: no two messages went the same way together",))
    limits, without = _limits(runs, own, together), _error(runs, latency, own, ONE_SERVER)
    tried = {sharing: _narrowest(runs, latency, own, sharing, limits) for sharing in get_args(Sharing)}
    (sharing, (width, error)), (_, (_, other)) = sorted(tried.items(), key=lambda found: found[1][1])
    if without < _EXPLAINED or error > _BETTER * without:
        return ServerLinkFit(None, False, (_why_none(without, together, own),))
    unknown = []
    if other < _ALIKE * error:
        unknown.append(f"server.sharing: one after another and at once explain these runs alike; {sharing} is assumed")
    return ServerLinkFit(ServerMachine(width, sharing), width < _NARROWER * own, tuple(unknown))


def _why_none(off: float, together: int, own: float) -> str:
    """That messages did not hinder each other can only be said where they took much the same."""
    if off > _SCATTERED:
        return f"server.bandwidth: messages are {off:.0%} off what they should take, and no link explains that"
    least = f", at least {format_rate(float(f'{own * together:.2g}'))}" if own < inf else ""
    return f"server.bandwidth: {together} messages at once were as fast as one alone{least}"


def _limits(runs: Sequence[Evidence], own: float, together: int) -> tuple[float, float]:
    """Between these the link is to be found: below, one message would not pass; above, it would never be full."""
    if own < inf:
        return own / 1.5, own * together * 1.5
    rates = [e.nbytes / float(np.mean([t.seconds for t in e.moved])) for e in runs]
    return min(rates) / 2, max(rates) * together * 2


def _narrowest(
    runs: Sequence[Evidence], latency: float, own: float, sharing: Sharing, limits: tuple[float, float]
) -> tuple[float, float]:
    """The width with the least error, and that error: a look at all, then golden section around the best."""

    def error(x: float) -> float:
        return _error(runs, latency, own, ServerMachine(exp(x), sharing))

    grid = np.linspace(log(limits[0]), log(limits[1]), _TRIED)
    best = int(np.argmin([error(x) for x in grid]))
    low, high = float(grid[max(0, best - 1)]), float(grid[min(_TRIED - 1, best + 1)])
    found = _least(error, low, high)
    return exp(found), error(found)


def _least(f: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(_CLOSELY):
        a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, b) if f(a) < f(b) else (a, high)
    return (low + high) / 2


def _error(runs: Sequence[Evidence], latency: float, own: float, server: ServerMachine) -> float:
    """How far what messages would take is from what they took, over the mean of their run; the mean of that.

    Not of its squares: a few messages that a busy machine held up would decide.
    """
    off: list[float] = []
    for e in runs:
        took = np.array([t.seconds for t in e.moved])
        would = np.array(would_take(e, latency, own, server))
        off += list(np.abs(would - took) / took.mean())
    return float(np.mean(off))


def would_take(e: Evidence, latency: float, own: float, server: ServerMachine) -> list[float]:
    """Seconds of every message of a run if it had gone over this link when it set out."""
    found = [0.0] * len(e.moved)
    for out in (False, True):
        way = sorted((k for k, t in enumerate(e.moved) if t.out == out), key=lambda k: e.moved[k].sent)
        starts = [e.moved[k].sent + latency for k in way]
        through = _at_once if server.sharing == "fair" else _one_by_one
        for k, there in zip(way, through(starts, e.nbytes, own, server.total), strict=True):
            found[k] = there - e.moved[k].sent
    return found


def _one_by_one(starts: Sequence[float], size: float, own: float, total: float) -> list[float]:
    free, found = 0.0, []
    for first in starts:
        free, there = in_turn(first, free, size, own, total)
        found.append(there)
    return found


def _at_once(starts: Sequence[float], size: float, own: float, total: float) -> list[float]:
    share, found = FairShare(total, own), [0.0] * len(starts)

    def run_to(now: float) -> None:
        while (first := share.first()) is not None and first[0] <= now:
            found[first[1]] = first[0]
            share.finish(*first)

    for k, begins in enumerate(starts):
        run_to(begins)
        share.begin(begins, k, size)
    run_to(inf)
    return found
