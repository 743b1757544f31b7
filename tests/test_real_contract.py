"""Every solver on every real engine: it runs, its books are complete, and where order does not matter its bits are."""

import traceback
from math import inf

import pytest
import torch

from odd_rules import Picky, Twice
from offbeat import solvers
from offbeat.core.effects import Applied
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.engines.debug.where import RuleFailedError
from offbeat.engines.local import Options
from offbeat.engines.real.transport import RunError
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.asgd import ASGD
from real import ONE_OF_EACH, ORDERLY, PLACES, REDUCING, build, on, rows_of, run, simulated
from trees import Tree

SUMS = {"summed whole by everybody": 1 << 20, "summed in slices": 0}
SUMMED = [(c, s) for c in ORDERLY for s in SUMS if c.solver in REDUCING or SUMS[s]]


def real(launcher, case, **given):
    return run(launcher, case.make(), **_setting(case.workers), **given)


def _setting(workers):
    return {
        "workers": workers,
        "task": Bowl(),
        "feed": Feed(None, batch=1, workers=workers, seed=7),
        "seed": 7,
    }


@pytest.mark.processes
@pytest.mark.parametrize(("place", "case"), on(PLACES, ONE_OF_EACH), ids=str)
def test_every_solver_runs_and_keeps_its_books(starter, case):
    engine = real(starter, case, updates=40)
    assert engine.ended == "watcher"
    rows = rows_of(engine)
    assert engine.updates >= 40
    assert torch.isfinite(engine.x).all()
    assert engine.x.dtype == torch.float64
    assert not torch.equal(engine.x, Bowl().init(7).x)
    drawn = {(i, k) for i in range(case.workers) for k in range(int(engine.processes.board.draws[i]))}
    own = [(r.source, r.draw) for r in rows if r.outcome != "received" and r.draw is not None]
    assert set(own) == drawn
    if case.options.get("filling") != "immediate":  # which uses its first gradients twice
        assert len(own) == len(set(own))
    assert sum(r.samples for r in rows if r.outcome == "applied") == engine.samples_applied
    assert all(r.staleness is None or r.staleness >= 0 for r in rows)


@pytest.mark.parametrize(("case", "sums"), SUMMED, ids=str)
def test_where_order_does_not_matter_the_bits_are_the_simulator_s(launcher, case, sums):
    """Each worker computes twelve gradients and leaves, here as there."""
    engine = real(launcher, case, updates=inf, options=Options(quota=12, short=SUMS[sums]))
    sim = simulated(case.make(), **_setting(case.workers), updates=inf, samples_per_worker=12)
    assert engine.ended == "idle"
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)


@pytest.mark.processes
@pytest.mark.parametrize(("place", "case"), on(PLACES[1:], ORDERLY), ids=str)
def test_without_shared_memory_the_bits_are_the_simulator_s_too(starter, case):
    engine = real(starter, case, updates=inf, options=Options(quota=12))
    sim = simulated(case.make(), **_setting(case.workers), updates=inf, samples_per_worker=12)
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)


@pytest.mark.parametrize("sums", SUMS)
def test_sums_within_groups_have_the_bits_of_the_simulator(launcher, sums):
    workers = 5  # a ragged last group, and slices of unequal length
    rule, options = Tree(optimizer_factory("sgd", lr=0.05)), Options(quota=9, short=SUMS[sums])
    engine = run(launcher, rule, **_setting(workers), updates=inf, options=options)
    sim = simulated(rule, **_setting(workers), updates=inf, samples_per_worker=9)
    assert engine.ended == "idle"
    assert engine.updates == sim.updates == 9
    assert all(torch.equal(engine.arena.published(i).x, sim.workers[0].state.x) for i in range(workers))


# -- what a rule says means the same everywhere ------------------------------------------------------------------------


class Aged(ASGD):
    """A server that knows the staleness of a gradient by other means than versions."""

    def on_call(self, s, worker, payload):
        for effect in super().on_call(s, worker, payload):
            if type(effect) is Applied:
                effect.staleness = 1000 + effect.gradient.draw
            yield effect


SGD = optimizer_factory("sgd", lr=0.05)


@pytest.mark.processes
@pytest.mark.parametrize("place", PLACES)
def test_a_rule_that_replies_twice_is_named(starter):
    with pytest.raises(RunError, match="Twice replied to worker 0, which waits for no answer"):
        run(starter, Twice(SGD), **_setting(1), updates=3)


@pytest.mark.processes
@pytest.mark.parametrize("place", PLACES)
def test_a_staleness_that_the_server_announces_is_kept(starter):
    engine = run(starter, Aged(SGD), **_setting(2), updates=6)
    assert all(r.staleness == 1000 + r.draw for r in rows_of(engine) if r.applied)


@pytest.mark.processes
@pytest.mark.parametrize("place", PLACES)
def test_a_worker_may_refuse_its_own_gradient(starter):
    engine = run(starter, Picky(SGD), **_setting(1), updates=inf, options=Options(quota=8))
    found = sorted((r.draw, r.outcome) for r in rows_of(engine))
    assert found == [(k, "refused" if k % 2 else "applied") for k in range(8)]
    assert (engine.samples, engine.samples_applied) == (8, 4)


@pytest.mark.processes
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "given", [{"allreduce": "hierarchical"}, {"latency": "1ms"}, {"service": "1ms"}, {"compute": "1ms"}], ids=str
)
def test_what_only_a_simulation_can_set_is_refused(starter, given):
    with pytest.raises(ConfigError, match=f"cluster.{next(iter(given))} is for simulation"):
        build(starter, ASGD(SGD), **_setting(2), **given)


def test_gossip_begins_at_the_initial_parameters(launcher):
    """With steps of nothing at all, every average of pairs is where everybody began."""
    rule = solvers.build("ad-psgd", optimizer_factory("sgd", lr=1e-300), {})
    engine = run(launcher, rule, **_setting(3), updates=30)
    assert torch.equal(engine.x, Bowl().init(7).x)


def test_an_exception_says_worker_round_and_request():
    class Broken(Bowl):
        def gradient(self, point, batch, key):
            self.count = getattr(self, "count", 0) + 1
            if self.count == 4:
                raise ValueError("the model is broken")
            return super().gradient(point, batch, key)

    setting = {**_setting(1), "task": Broken()}
    with pytest.raises(RuleFailedError) as caught:
        run(None, ASGD(SGD), **setting, updates=20)
    assert str(caught.value) == (
        "worker 0 failed in round 4, at Grad(at=tensor of 8 float64, version=3): ValueError: the model is broken"
    )
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert frames[-1].name == "gradient", "the cause is the exception itself, with its own traceback"


def test_an_exception_in_the_server_s_rule_says_whose_message_it_was():
    class Broken(ASGD):
        def on_call(self, s, worker, payload):
            raise KeyError("no such slot")

    with pytest.raises(RuleFailedError, match=r"the server failed at a message of worker 0, Called\(payload=Gradient"):
        run(None, Broken(SGD), **_setting(1), updates=20)
