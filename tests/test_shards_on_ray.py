"""A server in parts on a Ray cluster: the bits of one server, also when a shard, the server or a worker is lost."""

from math import inf

import pytest
import torch

from harness import Stop
from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.real.site import Fault, Options
from offbeat.engines.replay import Entry, Replay
from offbeat.engines.running.fit import uncuttable
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.asgd import ASGD
from real import ONE_OF_EACH, ORDERLY, long_task, rows_of, simulated, to_its_end

pytestmark = [pytest.mark.slow, pytest.mark.processes]
CUT = [c for c in ONE_OF_EACH if uncuttable(c.make()) is None]


def build(crew, rule, *, task=None, workers=2, options, shards=2, batch=1, **ray):
    task = Bowl() if task is None else task
    feed = Feed(task.size, batch=batch, workers=workers, seed=7)
    options, ray = Options(**options), RayOptions(shards=shards, **ray)
    return OnRay(task, rule, Cluster(workers=workers), feed, seed=7, options=options, ray=ray, crew=crew)


def run(crew, rule, **given):
    return to_its_end(build(crew, rule, **given), Stop(updates=inf))


def replayed(engine, rule, task, batch=1, workers=2, journal=None):
    """By a server that knows of no parts."""
    replay = Replay(task, rule, Feed(task.size, batch=batch, workers=workers, seed=7), engine.world, seed=7)
    replay.follow(Entry(*entry) for entry in journal or engine.journal)
    return replay.parameters


@pytest.mark.parametrize("case", CUT, ids=str)
def test_every_solver_that_can_runs_with_a_server_in_parts(crew, case):
    """And a replay, which knows of no parts, computes the same bits."""
    engine = run(crew, case.make(), workers=case.workers, options={"quota": 12})
    assert engine.updates > 0
    drawn = {(i, k) for i in range(case.workers) for k in range(int(engine.processes.board.draws[i]))}
    assert {(r.source, r.draw) for r in rows_of(engine) if r.draw is not None} == drawn
    assert torch.equal(engine.x, replayed(engine, case.make(), Bowl(), workers=case.workers))


@pytest.mark.parametrize("case", [c for c in ORDERLY if c.solver == "sync"], ids=str)
def test_where_order_does_not_matter_the_bits_are_those_of_the_simulator(crew, case):
    engine = run(crew, case.make(), workers=case.workers, options={"quota": 12}, shards=3)
    given = {"task": Bowl(), "feed": Feed(None, batch=1, workers=case.workers, seed=7), "seed": 7}
    sim = simulated(case.make(), workers=case.workers, **given, updates=inf, samples_per_worker=12)
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)


LOSSES = {
    "nobody": (),
    "the server": (Fault("kill", 5),),
    "a shard": (Fault("kill shard", 5),),
    "a worker": (Fault("kill", 3, worker=1),),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_long_vectors_have_the_bits_of_one_server_whoever_is_lost(crew, lost):
    """With moments, on encrypted lines, in parts that are longer than a message."""
    task, rule = long_task(), ASGD(optimizer_factory("adam", lr=0.001))
    options = {"quota": 6 * 4, "faults": LOSSES[lost]}
    engine = run(crew, rule, task=task, batch=4, options=options, encryption="on" if lost == "nobody" else "off")
    assert (engine.updates, engine.lost_updates) == (12, 0)
    assert torch.equal(engine.x, replayed(engine, rule, task, batch=4))
    if lost == "a shard":
        assert any("shard 0 of it was lost" in said for said in engine.incidents)


class Saving(Stop):
    """Takes a checkpoint at the mark."""

    def mark(self):
        self.tensors = {}
        self.saved, self.journal = self.engine.save(self.tensors), list(self.engine.journal)
        self.tensors = {name: t.clone() for name, t in self.tensors.items()}
        return super().mark()


def test_a_run_goes_on_from_a_checkpoint_with_another_number_of_shards(crew):
    """The checkpoint is that of any server."""
    rule, saving = ASGD(optimizer_factory("adam", lr=0.01)), Saving(updates=12)
    first = build(crew, rule, options={"quota": 24}, shards=3)
    try:
        first.run(saving.watch(first))
    finally:
        first.close()
    second = build(crew, rule, options={"quota": 24}, shards=2)
    second.restore(saving.saved, saving.tensors)
    engine = to_its_end(second, Stop(updates=inf))
    assert engine.updates == 48
    assert torch.equal(engine.x, replayed(engine, rule, Bowl(), journal=[*saving.journal, *engine.journal]))
