"""Every solver on real processes: it runs, its books are complete, and where order does not matter its bits are."""

import pytest
import torch

from cases import CASES
from offbeat.core.feed import Feed
from offbeat.core.trace import Row
from offbeat.engines.cluster import Cluster
from offbeat.engines.local import Cradle, Local, Options
from offbeat.engines.sim import Sim
from offbeat.lab.witness import Bowl
from offbeat.solvers.optimizers import optimizer_factory
from test_local import Until
from trees import Tree

ONE_OF_EACH = list({c.solver: c for c in CASES if c.workers > 1 or c.solver in ("plain", "constant-delay")}.values())
"""The last case of each solver: the one with most options."""

REDUCING = ("allreduce", "hierarchical", "local-sgd", "slowmo", "diloco")
ORDERLY = [c for c in CASES if c.solver in ("sync", "easgd", "ea-msgd", *REDUCING)]
"""Methods whose result does not depend on who comes first: barriers and turns."""

SUMS = {"summed whole by everybody": 1 << 20, "summed in slices": 0}


@pytest.fixture(scope="module")
def cradle():
    made = Cradle()
    yield made
    made.close()


def feed(workers):
    return Feed(None, batch=1, workers=workers, seed=7)


def local(cradle, case, updates, options=None):
    machines = Cluster(workers=case.workers)
    options = options or Options(gap=True)
    return Local(Bowl(), case.make(), machines, feed(case.workers), seed=7, options=options, cradle=cradle)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_every_solver_runs_on_real_processes_and_keeps_its_books(cradle, case):
    engine = local(cradle, case, 40)
    try:
        assert engine.run(Until(engine, 40)) == "watcher"
        engine.finish()
        x = engine.point.x
    finally:
        engine.close()
    rows = [Row(*r) for r in engine.rows]
    assert engine.updates >= 40
    assert torch.isfinite(x).all()
    assert x.dtype == torch.float64
    assert not torch.equal(x, Bowl().init(7).x)
    drawn = {(i, k) for i in range(case.workers) for k in range(int(engine.arena.draws[i]))}
    own = [(r.source, r.draw) for r in rows if r.outcome != "received" and r.draw is not None]
    assert set(own) == drawn
    if case.options.get("filling") != "immediate":  # which uses its first gradients twice
        assert len(own) == len(set(own))
    assert sum(r.samples for r in rows if r.outcome == "applied") == engine.samples_applied
    assert all(r.staleness is None or r.staleness >= 0 for r in rows)


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("case", ORDERLY, ids=str)
def test_where_order_does_not_matter_the_bits_are_the_simulator_s(cradle, case, sums):
    """Each worker computes twelve gradients and leaves, here as there."""
    if case.options.get("order") == "arrival":
        pytest.skip("exchanges come as they come")
    if case.solver not in REDUCING and not SUMS[sums]:
        pytest.skip("it sums nothing")
    engine = local(cradle, case, 10**9, Options(quota=12, short=SUMS[sums]))
    try:
        assert engine.run(Until(engine, 10**9)) == "idle"
        engine.finish()
        x = engine.point.x
    finally:
        engine.close()
    machines = Cluster(workers=case.workers)
    sim = Sim(Bowl(), case.make(), machines, feed(case.workers), seed=7, samples_per_worker=12)
    assert sim.run(Until(sim, 10**9)) == "idle"
    assert engine.updates == sim.updates
    assert torch.equal(x, sim.point.x)


@pytest.mark.parametrize("sums", SUMS)
def test_sums_within_groups_have_the_bits_of_the_simulator(cradle, sums):
    workers = 5  # a ragged last group, and slices of unequal length
    factory, options = optimizer_factory("sgd", lr=0.05), Options(quota=9, short=SUMS[sums])
    engine = Local(
        Bowl(), Tree(factory), Cluster(workers=workers), feed(workers), seed=7, options=options, cradle=cradle
    )
    try:
        assert engine.run(Until(engine, 10**9)) == "idle"
        engine.finish()
        xs = [engine.arena.published(i)[0] for i in range(workers)]
    finally:
        engine.close()
    sim = Sim(Bowl(), Tree(factory), Cluster(workers=workers), feed(workers), seed=7, samples_per_worker=9)
    sim.run(Until(sim, 10**9))
    assert engine.updates == sim.updates == 9
    assert all(torch.equal(x, sim.workers[0].state.x) for x in xs)
