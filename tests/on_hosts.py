"""A run on a Ray cluster of several hosts, started inside one of them by test_ray_hosts.py. Prints what came of it.

    python on_hosts.py ADDRESS NAME SCENARIO

Faults are tied to the run's progress: at a mark everything stands still, something is broken, and the run goes on. What
is to be mended while somebody cannot be reached is mended in full flight: he cannot stand still.
"""

import contextlib
import json
import os
import signal
import sys
from math import inf
from pathlib import Path

import torch

from harness import Stop, mlp_task
from hosts import Hosts
from offbeat import solver
from offbeat.core.feed import Feed
from offbeat.core.trace import Row
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.real.site import Fault, Options
from offbeat.engines.replay import Entry, Replay

WORKERS, BATCH, EACH = 4, 8, 20
"""Each worker has so many gradients to compute: a run cannot end before all have done their part."""


class Breaks(Stop):
    """At certain numbers of updates, breaks something; after others, mends it."""

    def __init__(self, deeds, mends):
        super().__init__(updates=inf)
        self.deeds, self.mends = sorted(deeds.items()), list(mends)

    def watch(self, engine):
        found = super().watch(engine)
        self._set()
        return found

    def _set(self):
        self.engine.next_updates = self.deeds[0][0] if self.deeds else inf

    def mark(self):
        while self.deeds and self.engine.updates >= self.deeds[0][0]:
            self.deeds.pop(0)[1](self.engine)
        self._set()
        return False

    def tick(self):
        while self.mends and self.mends[0][0](self.engine):
            self.mends.pop(0)[1](self.engine)
        return False


def after(updates):
    return lambda engine: engine.updates >= updates


def said(words):
    return lambda engine: any(words in line for line in engine.incidents)


def came(workers):
    return lambda engine: len(engine.presence.there | engine.staffing.done) == workers


def send(number, rank):
    """A signal to the first process of a worker, if it is still there."""
    pids = {}

    def deed(engine):
        pids.setdefault(rank, engine.processes.pids[rank])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[rank], number)

    return deed


def main(address, name, scenario):
    torch.set_num_threads(1)
    hosts = Hosts.__new__(Hosts)  # those that are there
    hosts.name, hosts.count, hosts.folder = name, 4, Path("/tmp") / name.replace("ob", "obr")
    hosts.token = hosts.folder / "token"
    deeds, mends, faults, patience, rule, start, workers = {}, [], (), 60.0, "asgd", None, WORKERS
    ray = RayOptions(address=address, cpus=1.0)
    match scenario:
        case "plain":
            pass
        case "sync":
            rule = "sync"
        case "actor":
            ray = RayOptions(address=address, transport="actor")
        case "clear":
            ray = RayOptions(address=address, encryption="off")
        case "slow link":
            deeds = {5: lambda _: hosts.slow(3, "100mbit")}
        case "heals":
            deeds, mends = {10: lambda _: hosts.cut(3)}, [(after(20), lambda _: hosts.mend(3))]
        case "server five times":
            faults = tuple(Fault("kill", 6 * k, life=k) for k in range(1, 6))
        case "hangs":
            patience, faults = 15.0, (Fault("hang", 5, 2),)
        case "worker killed":
            faults = (Fault("kill", 5, 1), Fault("kill", 3, 3))
        case "node lost":
            deeds = {15: lambda _: hosts.kill(4)}
        case "cut for good":
            patience, deeds = 8.0, {15: lambda _: hosts.cut(4)}
        case "stopped":
            stop, go_on = send(signal.SIGSTOP, 2), send(signal.SIGCONT, 2)
            patience, deeds, mends = 8.0, {15: stop}, [(said("worker 2 was lost"), go_on)]
        case "scaled":
            start, deeds = 2, {10: lambda e: e.scale(4)}
        case "node comes":  # one place is free, and more are wanted
            workers, start, deeds = 7, 5, {15: lambda e: e.scale(7)}
            mends = [(came(6), lambda _: hosts.start(4))]
    task = mlp_task()
    feed = Feed(task.size, batch=BATCH, workers=workers, seed=3)
    options = Options(quota=EACH * BATCH, patience_seconds=patience, faults=faults, start=start)
    made = solver(rule, lr=0.05)
    engine = OnRay(task, made, Cluster(workers=workers), feed, seed=3, options=options, ray=ray)
    try:
        ended = engine.run(Breaks(deeds, mends).watch(engine))
        engine.finish()
        x = engine.point.x
    finally:
        engine.close()
    replay = Replay(
        task, solver(rule, lr=0.05), Feed(task.size, batch=BATCH, workers=workers, seed=3), engine.world, seed=3
    )
    replay.follow(Entry(*entry) for entry in engine.journal)
    rows = [Row(*r) for r in engine.rows]
    drawn = {(i, k) for i in range(workers) for k in range(int(engine.processes.board.draws[i]))}
    own = [(r.source, r.draw) for r in rows if r.draw is not None]
    print(
        json.dumps(
            {
                "ended": ended,
                "updates": engine.updates,
                "lost": engine.lost_updates,
                "incidents": engine.incidents,
                "replayed": torch.equal(x, replay.parameters),
                "once": len(own) == len(set(own)),
                "all": set(own) == drawn,
                "applied": [sum(r.applied for r in rows if r.worker == i) for i in range(workers)],
                "short": sum(EACH - sum(r.applied for r in rows if r.worker == i) for i in range(workers)),
                "encrypted": engine.processes.encrypted,
                "nodes": sorted(set(engine.processes.nodes.values())),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
