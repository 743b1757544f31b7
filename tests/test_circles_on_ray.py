"""All-reduce by torch.distributed on a Ray cluster: the bits of every other engine, and an end whoever is lost."""

from math import inf

import pytest
import torch

from harness import Stop
from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.real.site import Fault, Options
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.allreduce import AllReduceSGD
from real import ONE_OF_EACH, ORDERLY, REDUCING, long_task, rows_of, simulated, to_its_end
from trees import Tree

pytestmark = [pytest.mark.slow, pytest.mark.processes]
GLOO = RayOptions(allreduce="gloo")
SGD = optimizer_factory("sgd", lr=0.05)


def build(crew, rule, workers, options, task=None, batch=1):
    task = Bowl() if task is None else task
    feed = Feed(task.size, batch=batch, workers=workers, seed=7)
    return OnRay(task, rule, Cluster(workers=workers), feed, seed=7, options=Options(**options), ray=GLOO, crew=crew)


def run(crew, rule, workers, stop=None, **options):
    return to_its_end(build(crew, rule, workers, options), stop or Stop(updates=inf))


def sim_of(rule, workers, quota):
    given = {"task": Bowl(), "feed": Feed(None, batch=1, workers=workers, seed=7), "seed": 7}
    return simulated(rule, workers=workers, **given, updates=inf, samples_per_worker=quota)


@pytest.mark.parametrize("case", [c for c in ORDERLY if c.solver in REDUCING], ids=str)
def test_every_solver_with_an_all_reduce_has_the_bits_of_the_simulator(crew, case):
    engine = run(crew, case.make(), case.workers, quota=12)
    sim = sim_of(case.make(), case.workers, 12)
    assert (engine.ended, engine.updates) == ("idle", sim.updates)
    assert torch.equal(engine.x, sim.point.x)
    drawn = {(i, k) for i in range(case.workers) for k in range(int(engine.processes.board.draws[i]))}
    assert sorted((r.source, r.draw) for r in rows_of(engine) if r.draw is not None) == sorted(drawn)
    assert not engine.incidents


def test_groups_that_a_rule_asks_for_have_its_bits(crew):
    engine, sim = run(crew, Tree(SGD), 5, quota=9), sim_of(Tree(SGD), 5, 9)
    assert engine.updates == sim.updates == 9
    assert torch.equal(engine.x, sim.point.x)


@pytest.mark.parametrize("case", [c for c in ONE_OF_EACH if c.solver == "ea-wild"], ids=str)
def test_groups_of_workers_that_share_memory_sum_among_themselves(crew, case):
    engine = run(crew, case.make(), case.workers, quota=12)
    assert engine.ended == "idle"
    assert torch.isfinite(engine.x).all()


def test_long_vectors_have_the_bits_of_the_simulator(crew):
    task = long_task()
    engine = to_its_end(build(crew, AllReduceSGD(SGD), 3, {"quota": 5 * 4}, task, 4), Stop(updates=inf))
    feed = Feed(task.size, batch=4, workers=3, seed=7)
    sim = simulated(AllReduceSGD(SGD), workers=3, task=task, feed=feed, seed=7, updates=inf, samples_per_worker=20)
    assert engine.updates == sim.updates == 5
    assert torch.equal(engine.x, sim.point.x)


class Apart(AllReduceSGD):
    """Shows how far apart the first and the last of those who are there are."""

    def parameters(self, s, workers):
        return workers[min(workers)].x - workers[max(workers)].x if workers else s.x


LOSSES = {
    "before it sums": Fault("kill", 5, worker=1),
    "in the middle of its first sum": Fault("kill sum", 0, worker=1),
    "in the middle of a later sum": Fault("kill sum", 4, worker=2),
    "as the first of all": Fault("kill sum", 4, worker=0),
}


@pytest.mark.parametrize("when", LOSSES)
def test_the_others_go_on_in_a_new_circle_without_who_is_lost(crew, when):
    """And stay equal to each other: everybody has every sum, or nobody."""
    fault = LOSSES[when]
    engine = run(crew, Apart(SGD), 3, Stop(updates=10), faults=(fault,), on_loss="leave out")
    assert engine.ended == "watcher"
    assert engine.updates >= 10
    assert torch.equal(engine.x, torch.zeros_like(engine.x))
    assert sum(f"worker {fault.worker} was lost" in said for said in engine.incidents) == 1


def test_everybody_else_does_all_of_its_part(crew):
    engine = run(crew, AllReduceSGD(SGD), 3, quota=12, faults=(Fault("kill sum", 4, worker=1),), on_loss="leave out")
    assert (engine.ended, engine.updates) == ("idle", 12)
    applied = [sum(r.applied for r in rows_of(engine) if r.worker == i) for i in range(3)]
    assert applied == [12, 4, 12], "of its fifth gradient, nobody has had anything"


def test_whoever_hangs_in_the_middle_of_a_sum_is_done_without(crew):
    fault = Fault("hang sum", 3, worker=2)
    engine = run(crew, AllReduceSGD(SGD), 3, quota=8, faults=(fault,), on_loss="leave out", patience_seconds=8.0)
    assert (engine.ended, engine.updates) == ("idle", 8)
    assert any("worker 2 was silent" in said for said in engine.incidents)


class Saving(Stop):
    """Takes a checkpoint at the mark."""

    def mark(self):
        self.tensors = {}
        self.saved = self.engine.save(self.tensors)
        self.tensors = {name: t.clone() for name, t in self.tensors.items()}
        return super().mark()


def test_a_run_goes_on_from_its_checkpoint_with_the_same_bits(crew):
    saving = Saving(updates=6)
    first = build(crew, AllReduceSGD(SGD), 3, {"quota": 12})
    try:
        first.run(saving.watch(first))
    finally:
        first.close()
    second = build(crew, AllReduceSGD(SGD), 3, {"quota": 12})
    second.restore(saving.saved, saving.tensors)
    engine = to_its_end(second, Stop(updates=inf))
    assert torch.equal(engine.x, sim_of(AllReduceSGD(SGD), 3, 12).point.x)


def test_a_server_that_is_killed_between_sums_is_followed_by_another(crew):
    """Nobody puts these updates in order: it goes on from the last checkpoint, here the beginning."""
    engine = run(crew, AllReduceSGD(SGD), 3, Stop(updates=12), faults=(Fault("kill", 5),))
    assert engine.ended == "watcher"
    assert engine.updates >= 12
    assert engine.lost_updates >= 5
