"""Thousands of workers: what they keep, and the clock without gradients."""

import gc
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from harness import Stop, build, cluster, simulate
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.sync import Sync
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic

SGD = partial(torch.optim.SGD, lr=0.1)


def vectors(dim: int) -> int:
    """Distinct pieces of memory of the size of a parameter vector that are alive."""
    gc.collect()
    alive = [o for o in gc.get_objects() if type(o) in (Tensor, nn.Parameter)]
    return len({t.untyped_storage().data_ptr() for t in alive if t.numel() == dim and t.untyped_storage().nbytes()})


@pytest.mark.parametrize("pool", [0, 2])
@pytest.mark.parametrize("solver", [ASGD, Sync])
def test_a_thousand_workers_keep_one_vector_each(solver, pool):
    """ASGD: what each has read. Sync: what each has delivered. And a constant number beside them."""
    W, dim = 1000, 1237
    sim = build(Quadratic(dim), solver(SGD), cluster(W, compute="normal(1s,0.2s)"), threads=pool)
    counts = []
    try:
        before = vectors(dim)
        for events in (W // 2, W - 100, 500):
            sim.run(Stop(ticks=events))
            counts.append(vectors(dim) - before)
    finally:
        sim.close()
    assert max(counts) <= W + 20
    assert max(counts) > W // 2, "the count sees them"


def test_timing_only_with_two_thousand_workers():
    W = 2000
    out = simulate(Idle(nbytes=10**6), ASGD(SGD), cluster(W, compute="normal(1s,0.2s)"), updates=3 * W)
    ages = [r["staleness"] for r in out.rows if r["outcome"] == "in flight"]
    assert sum(out.taus) == 3 * W * (W - 1) - sum(ages)
    assert out.sim.bytes == 3 * W * 2 * 10**6
    # All start together, so that a worker's next gradient is half a second away in the mean.
    assert out.sim.now == pytest.approx(3.5, rel=0.05)


def test_timing_only_has_the_times_of_real_training():
    """The same event loop: a simulation without gradients has the same clock, order and staleness."""
    link = {"latency": "1ms", "service": "exponential(2ms)"}
    events = ["lose 1 at 0.3s", "join 4 at 0.2s"]
    machines = cluster(5, compute="lognormal(10ms,5ms)", delay="30ms@2", events=events, **link)
    kept = ("time", "worker", "source", "draw", "staleness", "version_read", "outcome", "started", "computed")
    rows = []
    for task in (Idle(), Quadratic(3)):
        for solver in (ASGD(SGD), Sync(SGD)):
            out = simulate(task, solver, machines, updates=60)
            rows.append([[r[k] for k in kept] for r in out.rows])
    assert rows[0] == rows[2]
    assert rows[1] == rows[3]
    assert rows[0] != rows[1]
