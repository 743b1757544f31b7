"""A real run goes on, whatever happens: from a checkpoint as if it had never stopped, after a lost server as if it had
never been lost."""

import json
from dataclasses import replace
from math import inf

import pytest
import torch

from harness import Stop, mlp_task
from offbeat import solver
from offbeat.core.feed import Feed
from offbeat.core.solver import World
from offbeat.core.trace import Row
from offbeat.engines.local import Fault, Options
from offbeat.engines.real.recovery import recoverable
from offbeat.engines.replay import Entry, Replay
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.asgd import ASGD
from real import (
    ONE_OF_EACH,
    ORDERLY,
    OVERLAPPING,
    PLACES,
    QUOTA,
    build,
    on,
    rows_of,
    run,
    setting,
    simulated,
    to_its_end,
)
from resumption import Strikes, check_books, drawn_by

pytestmark = pytest.mark.processes

SERIAL = [c for c in ONE_OF_EACH if recoverable(c.make()) and c.solver not in ("easgd", "ea-msgd")]
SPRINGS = [c for c in ORDERLY if c.solver in ("easgd", "ea-msgd")]


def replayed(engine, case, journal):
    """The parameters, computed again from the arrivals alone."""
    feed = Feed(None, batch=1, workers=case.workers, seed=7)
    replay = Replay(Bowl(), case.make(), feed, engine.world, seed=7)
    replay.follow(Entry(*entry) for entry in journal)
    return replay.parameters


class Saves(Stop):
    """Takes a checkpoint after so many updates, and ends the run with it."""

    def __init__(self, updates, *, standing):
        """`standing`: while everything stands still for the watcher; otherwise in full flight."""
        super().__init__(updates=updates)
        self.standing, self.saved = standing, None

    def mark(self):
        if self.standing and self.saved is None:
            self.save()
        return super().mark()

    def tick(self):
        if not self.standing and self.saved is None and self.engine.updates:
            self.save()
            return True
        return False

    def save(self):
        tensors = {}
        text = json.dumps(self.engine.save(tensors))
        kept = {name: t.clone() for name, t in tensors.items()}
        self.saved = text, kept, list(self.engine.rows), list(self.engine.journal)


def interrupted(starter, case, *, standing, after=9):
    """A run that was saved on its way, after so many updates. If a machine is too fast for that, it is made slower."""
    for milliseconds in (5, 50, 500):
        saves = Saves(after, standing=standing)
        engine = build(starter, case.make(), **setting(case, f"{milliseconds}ms"))
        try:
            engine.run(saves.watch(engine))
        finally:
            engine.close()
        if saves.saved is not None:
            return saves.saved
    raise AssertionError("every run was over before it could be saved")


def saved_both_ways(pairs):
    """While everything stands still, and in full flight. On Ray, where a run takes seconds: one of the two, in turn."""
    return [
        pytest.param(*p.values, standing, marks=p.marks, id=f"{p.id}-{'standing' if standing else 'in flight'}")
        for k, p in enumerate(pairs)
        for standing in (True, False)
        if p.values[0] != "on ray" or standing == (k % 2 == 0)
    ]


def resumed(starter, case, text, tensors):
    engine = build(starter, case.make(), **setting(case))
    engine.restore(json.loads(text), tensors)
    return engine


@pytest.mark.parametrize(("place", "case", "standing"), saved_both_ways(on(PLACES, ONE_OF_EACH)))
def test_every_solver_goes_on_from_a_checkpoint(starter, case, standing):
    text, tensors, rows, journal = interrupted(starter, case, standing=standing)
    engine = resumed(starter, case, text, tensors)
    begun = engine.updates
    to_its_end(engine, Stop())
    assert engine.ended == "idle"
    assert engine.updates > begun
    assert engine.lost_updates == 0
    assert not engine.incidents
    check_books(case, [*(Row(*r) for r in rows), *rows_of(engine)], drawn_by(engine))
    if case in SERIAL:
        assert torch.equal(engine.x, replayed(engine, case, [*journal, *engine.journal]))


@pytest.mark.parametrize(("place", "case", "standing"), saved_both_ways(on(PLACES, ORDERLY)))
def test_where_order_does_not_matter_an_interrupted_run_has_the_bits_of_one_that_was_not(starter, case, standing):
    """Replicas, local steps, springs: the workers' own parameters and moments are in the checkpoint."""
    text, tensors, *_ = interrupted(starter, case, standing=standing)
    engine = to_its_end(resumed(starter, case, text, tensors), Stop())
    sim = whole(case)
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)


ONE = World(1, Bowl.layout, (0,))
ALONE = [c for c in (replace(c, workers=1) for c in ONE_OF_EACH) if c.make().why_not(ONE) is None]


@pytest.mark.parametrize(("place", "case", "standing"), saved_both_ways(on(PLACES, ALONE)))
def test_a_lone_worker_that_was_interrupted_has_the_simulator_s_bits(starter, case, standing):
    """Every solver: with one worker there is one order, also on a shared vector and among peers."""
    text, tensors, *_ = interrupted(starter, case, standing=standing, after=2)
    engine = to_its_end(resumed(starter, case, text, tensors), Stop())
    sim = whole(case)
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)


def whole(case):
    given = {k: v for k, v in setting(case).items() if k not in ("options", "delay")}
    return simulated(case.make(), **given, updates=inf, samples_per_worker=QUOTA)


KILLS = (Fault("kill", 4), Fault("kill", 7, life=2), Fault("kill", 8, life=3))


@pytest.mark.parametrize(("place", "case"), on(PLACES, SERIAL, on_ray=("asgd", "ssp", "backup", "fedbuff", "downpour")))
def test_a_lost_server_loses_nothing(starter, case, place):
    """Three times, the last time right after it has begun again.

    In shared memory the record outlives it at once. Elsewhere the last message may not have got to the control: then
    nobody was answered, and it is as if it had never been served.
    """
    engine = run(starter, case.make(), **setting(case, faults=KILLS), updates=inf)
    assert engine.ended == "idle"
    ends = [i.partition(";")[2] for i in engine.incidents]
    assert all(end.endswith(", nothing lost") for end in ends), engine.incidents
    from_where = [int(end.split()[3].removesuffix(",")) for end in ends]
    assert from_where == sorted(from_where)
    if place == "on ray":
        assert len(ends) == len(KILLS)
        assert all(found <= fault.at for found, fault in zip(from_where, KILLS, strict=True))
    else:
        assert from_where == [fault.at for fault in KILLS]
    assert engine.lost_updates == 0
    check_books(case, rows_of(engine), drawn_by(engine))
    assert engine.samples_applied == sum(r.samples for r in rows_of(engine) if r.outcome == "applied")
    assert torch.equal(engine.x, replayed(engine, case, engine.journal))


@pytest.mark.parametrize(("place", "case"), on(PLACES, [c for c in SERIAL if c.solver == "sync"]), ids=str)
def test_a_run_that_lost_its_server_has_the_bits_of_one_that_did_not(starter, case):
    engine = run(starter, case.make(), **setting(case, faults=KILLS), updates=inf)
    sim = whole(case)
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)


@pytest.mark.parametrize(("place", "case"), on(PLACES, SPRINGS), ids=str)
def test_steps_that_workers_made_by_themselves_are_made_again(starter, case):
    """Elastic averaging: what they announced after their last exchange is made again from there, and has one row."""
    engine = run(starter, case.make(), **setting(case, faults=KILLS[:1]), updates=inf)
    assert len(engine.incidents) == 1
    sim = whole(case)
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)
    assert engine.lost_updates == 0
    assert {r.outcome for r in rows_of(engine)} == {"applied"}
    assert len(rows_of(engine)) == sim.updates
    check_books(case, rows_of(engine), drawn_by(engine))


@pytest.mark.parametrize("place", PLACES)
def test_a_schedule_and_statistics_survive_a_lost_server(starter):
    """Momentum on the server, a learning rate over the work clock, BatchNorm on the workers."""

    def rule():
        made = solver("fedbuff", steps=3, K=2, lr=0.1, server_momentum=0.9)
        made.schedule = Half(100)
        return made

    options = Options(quota=30 * 8, faults=(Fault("kill", 4), Fault("kill", 11, life=2)))
    task = mlp_task(norm=True)
    engine = run(starter, rule(), task=task, workers=3, updates=inf, options=options)
    assert engine.lost_updates == 0
    replay = Replay(task, rule(), Feed(task.size, batch=8, workers=3, seed=3), engine.world, seed=3)
    replay.follow(Entry(*entry) for entry in engine.journal)
    assert torch.equal(engine.x, replay.parameters)


class Clocked(ASGD):
    """Workers scale what they push by the work clock, and compute while it is under way."""

    needs_answer = None

    def __init__(self):
        super().__init__(optimizer_factory("sgd", lr=0.05))
        self.overlap, self.schedule = True, Half(100)

    def pushed(self, w, g):
        return g.carrying(g.value / (1 + g.work / 50))


@pytest.mark.parametrize("faults", [KILLS, (Fault("kill", 9, worker=1),)], ids=["servers", "worker"])
@pytest.mark.parametrize("place", PLACES)
def test_what_workers_knew_of_the_work_clock_survives_though_their_messages_were_under_way(starter, faults):
    """The journal tells the clock of every gradient, also of one that was computed while another one travelled."""
    case = OVERLAPPING[0]
    engine = run(starter, Clocked(), **setting(case, faults=faults), updates=inf)
    assert engine.ended == "idle"
    replay = Replay(Bowl(), Clocked(), Feed(None, batch=1, workers=case.workers, seed=7), engine.world, seed=7)
    replay.follow(Entry(*entry) for entry in engine.journal)
    assert torch.equal(engine.x, replay.parameters)
    check_books(case, rows_of(engine), drawn_by(engine))


class Half:
    """1 before so many samples, 1/2 after them."""

    def __init__(self, samples):
        self.samples = samples

    def __call__(self, work):
        return 1.0 if work < self.samples else 0.5


@pytest.mark.parametrize("place", PLACES)
def test_without_a_server_that_serialises_the_loss_is_counted(starter):
    case = next(c for c in ORDERLY if c.solver == "allreduce")
    options = setting(case)
    struck = Strikes(10)
    engine = build(starter, case.make(), **options)
    to_its_end(engine, struck)
    assert engine.lost_updates == struck.at
    assert f"after update {struck.at}; restarted from update 0, {struck.at} lost" in engine.incidents[0]
    assert sum(r.outcome == "lost" and r.samples > 0 for r in rows_of(engine)) == struck.at * case.workers
    check_books(case, rows_of(engine), drawn_by(engine))
