"""A server that is lost at the end, or under a method that no server serialises: the books are complete."""

import json
import os
import signal
from math import inf

import pytest
import torch

from harness import Stop
from offbeat.engines.debug.still import Killed
from offbeat.engines.real.recovery import recoverable
from offbeat.engines.real.server_loop import ServerLoop
from offbeat.engines.real.transport import Ordered
from processes import descendants, state, until
from real import ON_ONE_MACHINE, ONE_OF_EACH, ORDERLY, QUOTA, build, on, rows_of, run, setting, to_its_end
from resumption import check_books, drawn_by

pytestmark = pytest.mark.processes

ASGD = [c for c in ONE_OF_EACH if c.solver == "asgd"]
ENDS = [*ASGD, *(c for c in ONE_OF_EACH if c.solver in ("rennala", "easgd", "allreduce", "hogwild"))]
"""One of each kind: served one by one, held by the server, elastic, without a server, on a shared vector."""
HOW = {"on processes": "was lost (SIGKILL)", "on threads": "was lost (killed)"}


class Deadly(Ordered):
    """An order that the server does not survive."""

    def __init__(self):
        pass

    @property
    def order(self):
        raise Killed


def kill_server(engine, launcher):
    """When all workers stand still, and only the server does not."""
    if launcher is None:
        engine.processes._hub.inbox.put(Deadly())
        return
    (forker,) = [p for p in descendants(launcher._process.pid) if descendants(p)]

    def moving():
        return [p for p in descendants(forker) if state(p) not in "TZ"]

    until(lambda: len(moving()) == 1, "everybody but the server to stand still")
    os.kill(*moving(), signal.SIGKILL)


@pytest.mark.parametrize(("place", "case"), on(ON_ONE_MACHINE, ENDS), ids=str)
def test_a_run_that_is_over_needs_no_server_to_close_its_books(starter, place, case):
    engine = build(starter, case.make(), **setting(case))
    try:
        assert engine.run(Stop(updates=20).watch(engine)) == "watcher"
        reached, x = engine.updates, engine.point.x
        kill_server(engine, starter)
        engine.finish()
        assert engine.incidents == [f"the server {HOW[place]} when the run was over; nothing lost"]
        assert engine.updates == reached
        assert engine.lost_updates == 0
        assert torch.equal(engine.point.x, x)
        check_books(case, rows_of(engine), drawn_by(engine))
        assert sum(r.samples for r in rows_of(engine) if r.outcome == "applied") == engine.samples_applied
    finally:
        engine.close()


@pytest.mark.parametrize(("place", "case"), on(ON_ONE_MACHINE, ASGD), ids=str)
def test_what_the_optimizer_was_is_known_when_the_server_is_lost(starter, place, case):
    engine = build(starter, case.make(), **setting(case))
    try:
        engine.run(Stop(updates=5).watch(engine))
        kill_server(engine, starter)
        assert engine.lr == case.optimizer["lr"]
        assert engine.optimizer_options["lr"] == case.optimizer["lr"]
        engine.finish()
    finally:
        engine.close()


@pytest.mark.parametrize(("place", "case"), on(ON_ONE_MACHINE, ASGD), ids=str)
def test_a_run_that_was_interrupted_is_saved_though_its_server_is_lost(starter, place, case):
    engine = build(starter, case.make(), **setting(case, "2ms"))
    try:
        engine.run(Stop(updates=6).watch(engine))
        kill_server(engine, starter)
        tensors = {}
        text = json.dumps(engine.save(tensors))
        tensors = {name: t.clone() for name, t in tensors.items()}
        rows, reached = rows_of(engine), engine.updates
        assert reached >= 6
    finally:
        engine.close()
    resumed = build(starter, case.make(), **setting(case))
    resumed.restore(json.loads(text), tensors)
    to_its_end(resumed, Stop())
    assert resumed.incidents == [
        f"the server {HOW[place]} after update 6; restarted from update 6, nothing lost",
    ]
    assert resumed.lost_updates == 0
    check_books(case, [*rows, *rows_of(resumed)], drawn_by(resumed))


OTHERS = [c for c in ONE_OF_EACH if not recoverable(c.make())]


class Strikes:
    """At the first looks at a run, when all but the server stand still, the server is killed."""

    def __init__(self, launcher, times):
        self.launcher, self.times, self.reached = launcher, times, []

    def __call__(self, engine):
        if len(self.reached) < self.times:
            self.reached.append(engine.updates)
            kill_server(engine, self.launcher)
            raise AssertionError(f"the server answered: {engine.lr}")


@pytest.mark.parametrize(
    ("place", "case"),
    on([pytest.param("on processes", marks=pytest.mark.slow), "on threads"], OTHERS),
    ids=str,
)
def test_a_method_that_no_server_serialises_survives_its_server(starter, place, case):
    """It begins again, and says how much that was."""
    strikes = Strikes(starter, 2)
    engine = run(starter, case.make(), **setting(case, "2ms"), stop=Stop(every=5, look=strikes))
    assert engine.ended == "idle"
    assert engine.incidents == [
        f"the server {HOW[place]} after update {n}; restarted from update 0, {n} lost" for n in strikes.reached
    ]
    assert engine.lost_updates == sum(strikes.reached) > 0
    check_books(case, rows_of(engine), drawn_by(engine))
    assert engine.samples_applied == sum(r.samples for r in rows_of(engine) if r.outcome == "applied")


def test_every_solver_is_among_those_whose_server_is_lost():
    names = {c.solver for c in OTHERS} | {c.solver for c in ONE_OF_EACH if recoverable(c.make())}
    assert {c.solver for c in ORDERLY} <= names
    assert len(names) == 37


@pytest.mark.parametrize("case", [c for c in ONE_OF_EACH if c.solver in ("sync", "asgd", "rennala")], ids=str)
def test_what_was_drawn_before_the_server_had_heard_anything_is_drawn_again(monkeypatch, case):
    on_call, lost = ServerLoop._on_call, []

    def dies(self, peer, message):
        if not lost:
            lost.append(peer.rank)
            self.hub.die()
        on_call(self, peer, message)

    monkeypatch.setattr(ServerLoop, "_on_call", dies)
    engine = run(None, case.make(), **setting(case), updates=inf)
    assert engine.incidents == ["the server was lost (killed) after update 0; restarted from update 0, nothing lost"]
    check_books(case, rows_of(engine), drawn_by(engine))
    assert engine.processes.board.samples.tolist() == [QUOTA] * case.workers
    assert sum(r.samples for r in rows_of(engine)) == QUOTA * case.workers
