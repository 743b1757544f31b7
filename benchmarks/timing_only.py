"""Updates a second of the timing-only simulation against the same model in SimPy, on the same machine.

W workers with normal compute times (clipped at 0) push over the server's link, one message after another, to a server
that serves one at a time, first come first served; the answers go back over its link likewise. Each update leaves a row
with times, versions and staleness. The same without a link is measured, too. Everything counts, set-up too. Repeats
alternate, so that a busy moment hits all; processor time is taken, and the median of the ratios counts.

    python benchmarks/timing_only.py [--repeats 5] [--updates-per-worker 50]
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import simpy

from offbeat.core.feed import Feed
from offbeat.engines.clock import columns as slotted
from offbeat.engines.clock.general import Timing
from offbeat.engines.cluster import Cluster
from offbeat.engines.protocol import ToTheMark
from offbeat.lab.studies.timing import NoOptimizer
from offbeat.solvers.asgd import ASGD
from offbeat.tasks.idle import Idle

BOUNDS = {(True, "general"): 4.0, (True, "slotted"): 10.0, (False, "general"): 2.0, (False, "slotted"): 8.0}
"""By whether there is a link."""
MEAN, STD, LOAD = 1.0, 0.2, 0.5  # seconds, and the share of time that the server, and its link each way, are busy
BYTES = 1000  # of a message


def in_simpy(workers: int, updates: int, link: bool) -> list[tuple[float, ...]]:
    """What its documentation would have you write."""
    env = simpy.Environment()
    server, inward, outward = (simpy.Resource(env, capacity=1) for _ in range(3))
    rng = np.random.default_rng(0)
    done = env.event()
    rows: list[tuple[float, ...]] = []
    version = 0

    def worker(i: int):  # type: ignore[no-untyped-def]  # a SimPy process
        nonlocal version
        read = 0
        while True:
            started = env.now
            yield env.timeout(max(0.0, rng.normal(MEAN, STD)))
            computed = env.now
            if link:
                with inward.request() as turn:
                    yield turn
                    yield env.timeout(LOAD * MEAN / workers)
            with server.request() as turn:
                yield turn
                yield env.timeout(LOAD * MEAN / workers)
            rows.append((env.now, i, read, version, version - read, started, computed))
            version += 1
            read = version
            if version == updates:
                done.succeed()
            if link:
                with outward.request() as turn:
                    yield turn
                    yield env.timeout(LOAD * MEAN / workers)

    for i in range(workers):
        env.process(worker(i))
    env.run(until=done)
    return rows


def cluster(workers: int, link: bool) -> Cluster:
    narrow = {"server": {"bandwidth": BYTES * workers / (LOAD * MEAN)}} if link else {}
    return Cluster.parse(workers=workers, compute=f"normal({MEAN}s,{STD}s)", service=LOAD * MEAN / workers, **narrow)


def general(workers: int, updates: int, link: bool) -> list[tuple[object, ...]]:
    """The rule itself, effect by effect."""
    feed = Feed(None, batch=1, workers=workers, seed=0)
    sim = Timing(Idle(BYTES), ASGD(NoOptimizer), cluster(workers, link), feed, seed=0, resumable=False)
    sim.next_updates = updates
    sim.run(ToTheMark())
    return sim.rows


def fast(workers: int, updates: int, link: bool) -> slotted.Timeline | None:
    """The loop for rules that answer at once."""
    return slotted.run(cluster(workers, link), seed=0, nbytes=BYTES, updates=updates)


def rate(run: Callable[[int, int, bool], object], workers: int, updates: int, link: bool) -> float:
    gc.collect()
    started = time.process_time()
    found = run(workers, updates, link)
    assert found is not None
    return updates / (time.process_time() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--updates-per-worker", type=int, default=50)
    args = parser.parse_args()
    loops = {"general": general, "slotted": fast}
    for run in (*loops.values(), in_simpy):
        run(10, 100, True)
    missed = False
    print(f"{'workers':>8} {'link':>5} {'loop':>8} {'offbeat':>12} {'SimPy':>11} {'ratio':>7} {'bound':>6}")
    for workers, link in ((100, True), (3200, True), (100, False), (3200, False)):
        updates = max(50_000, args.updates_per_worker * workers)
        rates: dict[str, list[float]] = {"SimPy": [], **{name: [] for name in loops}}
        for _ in range(args.repeats):
            rates["SimPy"].append(rate(in_simpy, workers, updates, link))
            for name, run in loops.items():
                rates[name].append(rate(run, workers, updates, link))
        for name in loops:
            bound = BOUNDS[link, name]
            ratio = statistics.median(a / b for a, b in zip(rates[name], rates["SimPy"], strict=True))
            missed |= ratio < bound
            ours, theirs = statistics.median(rates[name]), statistics.median(rates["SimPy"])
            shown = f"{workers:8,} {'yes' if link else 'no':>5} {name:>8} {ours:10,.0f}/s {theirs:9,.0f}/s"
            print(f"{shown} {ratio:7.2f} {bound:6.1f}" + ("  MISSED" if ratio < bound else ""), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
