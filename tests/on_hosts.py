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

import torch

from by_machine import in_step
from harness import Stop, mlp_task
from hosts import hosts
from offbeat import solver
from offbeat.core.effects import AllReduce, SharedAdd
from offbeat.core.errors import ConfigError
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


def computed_again(engine, x, rule, task, feed):
    """Whether that has the same bits: from the journal, or (nobody puts all-reduces in order, nor has to) step by step
    with sums by machine; None where nobody can say."""
    again = solver(rule, lr=0.05)
    if SharedAdd in again.asks:
        return None
    if AllReduce in again.asks:
        machines = [engine.processes.nodes[i] for i in range(engine.world.workers)]
        return torch.equal(x, in_step(task, again, feed, engine.world, machines, steps=EACH, seed=3))
    replay = Replay(task, again, feed, engine.world, seed=3)
    replay.follow(Entry(*entry) for entry in engine.journal)
    return torch.equal(x, replay.parameters)


def main(address, name, scenario):
    torch.set_num_threads(1)
    there = hosts(name)
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
        case "shards":
            ray = RayOptions(address=address, shards=2, server_cpus=0.5)
        case "a shard killed":
            ray = RayOptions(address=address, shards=2, server_cpus=0.5)
            faults = (Fault("kill shard", 12),)
        case "hogwild":
            rule, workers = "hogwild", 2
        case "hogwild, too many":
            rule, ray = "hogwild", RayOptions(address=address, wait_seconds=5.0)
        case "gloo":
            rule, ray = "allreduce", RayOptions(address=address, allreduce="gloo")
        case "gloo, some together":
            rule, ray, workers = "allreduce", RayOptions(address=address, allreduce="gloo"), 6
        case "gloo, worker killed":
            rule, ray = "allreduce", RayOptions(address=address, allreduce="gloo")
            faults = (Fault("kill sum", 5, 2),)
        case "gloo, node lost":
            rule, ray = "allreduce", RayOptions(address=address, allreduce="gloo")
            deeds = {8: lambda _: there.kill(4)}
        case "slow link":
            deeds = {5: lambda _: there.slow(3, "100mbit")}
        case "heals":
            deeds, mends = {10: lambda _: there.cut(3)}, [(after(20), lambda _: there.mend(3))]
        case "server five times":
            faults = tuple(Fault("kill", 6 * k, life=k) for k in range(1, 6))
        case "hangs":
            patience, faults = 15.0, (Fault("hang", 5, 2),)
        case "worker killed":
            faults = (Fault("kill", 5, 1), Fault("kill", 3, 3))
        case "node lost":
            deeds = {15: lambda _: there.kill(4)}
        case "cut for good":
            patience, deeds = 8.0, {15: lambda _: there.cut(4)}
        case "stopped":
            stop, go_on = send(signal.SIGSTOP, 2), send(signal.SIGCONT, 2)
            patience, deeds, mends = 8.0, {15: stop}, [(said("worker 2 was lost"), go_on)]
        case "scaled":
            start, deeds = 2, {10: lambda e: e.scale(4)}
        case "node comes":  # one place is free, and more are wanted
            workers, start, deeds = 7, 5, {15: lambda e: e.scale(7)}
            mends = [(came(6), lambda _: there.start(4))]
    task = mlp_task()
    feed = Feed(task.size, batch=BATCH, workers=workers, seed=3)
    options = Options(quota=EACH * BATCH, patience_seconds=patience, faults=faults, start=start)
    made = solver(rule, lr=0.05)
    engine = OnRay(task, made, Cluster(workers=workers), feed, seed=3, options=options, ray=ray)
    try:
        ended = engine.run(Breaks(deeds, mends).watch(engine))
        engine.finish()
        x = engine.point.x
    except ConfigError as e:
        print(json.dumps({"refused": str(e)}))
        return
    finally:
        engine.close()
    same = computed_again(engine, x, rule, task, Feed(task.size, batch=BATCH, workers=workers, seed=3))
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
                "replayed": same,
                "once": len(own) == len(set(own)),
                "all": set(own) == drawn,
                "applied": [sum(r.applied for r in rows if r.worker == i) for i in range(workers)],
                "short": sum(EACH - sum(r.applied for r in rows if r.worker == i) for i in range(workers)),
                "encrypted": engine.processes.encrypted,
                "nodes": sorted(set(engine.processes.nodes.values())),
                "where": engine.processes.nodes,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
