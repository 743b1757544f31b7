"""What happens where more workers than cores share a machine: what needs a core, and for how long one keeps it.

A crowd's throughput tells whether messages and the server need cores, too, and the share of its time in which it
computes tells how cores are shared: with slices that are longer than a gradient, gradients wait for a core instead of
being slowed.
No formula has both, so each way of sharing is simulated, and the one that comes nearest to the crowds is taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import numpy as np

from offbeat.core.errors import OffbeatError
from offbeat.engines.cluster import Cluster
from offbeat.engines.cluster.crowding import CoresFor
from offbeat.lab.fitting.computing_fit import crowded, shares_cores
from offbeat.lab.fitting.evidence import Evidence
from offbeat.lab.studies.timing import Timed, rule_of, simulate

UPDATES = 600  # of each simulation
_SLICES = (0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.02)
_CLEAR = 0.8  # turns have to leave less than this share of the squared error of equal shares to be taken,
_SMALL = 0.02**2  # and equal shares have to leave more than this


class Sharing(NamedTuple):
    """One way of sharing cores."""

    cores: int
    cores_for: CoresFor = "everything"
    slice: float = 0.0
    """Seconds, on average; 0 is equal shares at every moment."""


@dataclass(frozen=True)
class CrowdFit:
    """How the workers of one machine share its cores; None where they share nothing."""

    sharing: Sharing | None
    off: float | None = None
    """Root mean square of what it leaves of crowds: of the logarithms of throughput and of the share of computing."""
    unknown: tuple[str, ...] = ()


On = Callable[[Sharing, Evidence], Cluster]
"""The machine that was fitted with such a sharing, and the workers of a run."""


def fit_crowd(evidence: Sequence[Evidence], cores: int, on: On) -> CrowdFit:
    """From runs of any model: `on` knows their gradients. `cores` are the machine's."""
    shared = [e for e in evidence if shares_cores(e)]
    crowds = [e for e in shared if crowded(e, cores)]
    if not shared:
        return CrowdFit(None)
    if not crowds:
        said = f"core sharing: no run has more workers than cores; {cores} cores are assumed"
        return CrowdFit(Sharing(cores), unknown=(said, "slice: likewise; equal shares are assumed"))
    alone = {e.model for e in evidence if not crowded(e, cores)}
    told = [e for e in crowds if e.model in alone and e.solver is not None]
    if not told:  # their times on a core of their own are not known, but for what equal shares make of them
        said = f"core sharing: all runs have more workers than cores; {cores} cores are assumed"
        return CrowdFit(Sharing(cores, "computing"), unknown=(said,))
    groups: dict[tuple[Any, ...], list[Evidence]] = {}
    for e in told:
        groups.setdefault((e.solver, e.model, e.workers, e.batch), []).append(e)

    def left(sharing: Sharing) -> float:
        return float(np.mean([_off(runs, sharing, on) for runs in groups.values()]))

    best, least = min(((way, left(way)) for way in plain_ways(cores)), key=lambda found: found[1])
    turns, with_turns = min(((way, left(way)) for way in in_turns(cores)), key=lambda found: found[1])
    if least > _SMALL and with_turns < _CLEAR * least:
        best, least = turns, with_turns
    return CrowdFit(best, float(np.sqrt(least)))


def plain_ways(cores: int) -> list[Sharing]:
    """Equal shares."""
    return [Sharing(cores), Sharing(cores, "computing")]


def in_turns(cores: int) -> list[Sharing]:
    return [Sharing(cores, "everything", seconds) for seconds in _SLICES]


def _off(runs: Sequence[Evidence], sharing: Sharing, on: On) -> float:
    """The mean squared error of the logarithms of throughput and of the share of computing; equal runs are averaged."""
    e = runs[0]
    try:
        rule = rule_of(str(e.solver), dict(e.options))
        timed = simulate(on(sharing, e), rule, updates=UPDATES, nbytes=e.nbytes, batch=e.batch or 1)
    except OffbeatError:  # a rule that only its own run knows how to make
        return 0.0
    takes = float(np.mean([np.mean([one.usual.mean() for one in r.series if len(one.usual)]) for r in runs]))
    longer = log(_gradient(timed) / takes)
    rates = [r.rate for r in runs if r.rate]
    if not rates:
        return longer**2
    faster = log(timed.summary["samples_per_virtual_second"] / float(np.mean(rates)))
    # The share of the time in which workers compute is the time of a gradient times how many there are a second.
    return (faster**2 + (longer + faster) ** 2) / 2


def _gradient(timed: Timed) -> float:
    """Seconds of a gradient on average, without what was injected."""
    computing = sum(worker["computing"] for worker in timed.per_worker)
    return float(computing / len(timed.trace))
