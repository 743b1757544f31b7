"""A trial: a case on a small task in the simulator, run for a while, and what came of it."""

import json
from math import inf
from typing import Any

from torch import Tensor

from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.protocol import ToTheMark
from offbeat.engines.sim import Sim
from offbeat.lab.contract.case import Broken, Case
from offbeat.lab.contract.patience import limited
from offbeat.lab.contract.recorder import Bowl

SEED = 7


class Until(ToTheMark):
    """A watcher that ends a trial after so many events or updates."""

    def __init__(self, sim: Sim, events: float = inf, updates: float = inf) -> None:
        self._sim, self._events, self._updates = sim, events, updates

    def mark(self) -> bool:
        return False

    def tick(self) -> bool:
        self._events -= 1
        return self._events <= 0 or self._sim.updates >= self._updates


def trial(case: Case, task: Any = None, solver: Any = None, *, threads: int = 0, **cluster: Any) -> Sim:
    """The case, ready to run on the small task: unequal times, a link, a busy server."""
    times = {"compute": "lognormal(10ms,6ms)", "latency": "1ms", "service": "exponential(1ms)", "memory": "2ms"}
    values = {"workers": case.workers, **times, **cluster}
    machines = Cluster.parse(**values)
    feed = feed_of(machines.workers)
    return Sim(task or Bowl(), limited(solver or case.make()), machines, feed, seed=SEED, threads=threads)


def advance(sim: Sim, events: float = inf, updates: float = inf) -> str:
    """So many events or updates further; how it ended."""
    try:
        return sim.run(Until(sim, events, updates))
    finally:
        sim.close()


def account(sim: Sim) -> dict[str, Any]:
    """What two runs must have in common: parameters, rows, the state of the server, every counter."""
    tensors: dict[str, Any] = {}
    server = sim.context.codec.encode(sim.solver.save_server(sim.server), tensors)
    sim.finish()
    x = sim.point.x
    names = ("now", "updates", "samples", "samples_applied", "bytes", "queued", "served")
    return {
        "the parameters": x.tolist() if isinstance(x, Tensor) else None,
        "the rows of the trace": list(sim.rows),
        "the server's state": (server, {k: t.tolist() for k, t in tensors.items()}),
        "the counters": {**{n: getattr(sim, n) for n in names}, "events": sim.context.events.sequence},
    }


def compare(one: dict[str, Any], other: dict[str, Any], when: str) -> None:
    """Two accounts must be the same."""
    for what in one:
        if one[what] != other[what]:
            raise Broken(f"{what} differ {when}")


def reincarnated(old: Sim, new: Sim) -> Sim:
    """A new engine that goes on where the old one is, through JSON and copies, as a file would have it."""
    tensors: dict[str, Any] = {}
    text = json.dumps(old.save(tensors))
    new.restore(json.loads(text), {k: t.clone() for k, t in tensors.items()})
    new.rows[:] = old.rows
    return new


def feed_of(workers: int) -> Feed:
    """The batches of a task without a dataset."""
    return Feed(None, batch=1, workers=workers, seed=SEED)
