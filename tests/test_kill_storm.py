"""A storm of kills over every solver on every real engine, at points drawn from a seed, launchers included.

OFFBEAT_STORM is how many storms each of them goes through, 1 unless given.
"""

import json
import os
import random
import signal
from math import inf

import pytest
import torch

from harness import Stop
from offbeat.core.feed import Feed
from offbeat.core.trace import Row
from offbeat.engines.local import Fault, Launcher
from offbeat.engines.real.recovery import recoverable
from offbeat.engines.real.transport import RunError
from offbeat.engines.replay import Entry, Replay
from offbeat.lab.contract.recorder import Bowl
from processes import alive, descendants, until
from real import ON_ONE_MACHINE, ONE_OF_EACH, QUOTA, build, on, rows_of, run, setting, to_its_end
from resumption import check_books, drawn_by

pytestmark = [pytest.mark.processes, pytest.mark.slow]
SEEDS = range(int(os.environ.get("OFFBEAT_STORM", "1")))


def storm(case, seed):
    """Who is killed when: workers in all their first lives, and the server twice."""
    draw = random.Random(f"{seed}/{case}")
    workers = [
        Fault("kill", draw.randrange(QUOTA // 2), worker=draw.randrange(case.workers), life=draw.choice((1, 1, 2)))
        for _ in range(draw.randrange(1, 4))
    ]
    servers = [Fault("kill", draw.randrange(1, QUOTA), life=1 + k) for k in range(draw.randrange(3))]
    return (*workers, *servers)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("place", "case"), on(ON_ONE_MACHINE, ONE_OF_EACH), ids=str)
def test_a_storm_of_kills_loses_nothing_but_what_it_says(starter, case, seed):
    engine = run(starter, case.make(), **setting(case, faults=storm(case, seed)), updates=inf)
    assert engine.ended == "idle"
    check_books(case, rows_of(engine), drawn_by(engine))
    assert all(r.staleness is None or r.staleness >= 0 for r in rows_of(engine))
    assert engine.samples_applied == sum(r.samples for r in rows_of(engine) if r.outcome == "applied")
    assert torch.isfinite(engine.x).all()
    if recoverable(case.make()):
        assert engine.lost_updates == 0
        assert not any(r.samples for r in rows_of(engine) if r.outcome == "lost")
        feed = Feed(None, batch=1, workers=case.workers, seed=7)
        replay = Replay(Bowl(), case.make(), feed, engine.world, seed=7)
        replay.follow(Entry(*entry) for entry in engine.journal)
        assert torch.equal(engine.x, replay.parameters)


class KillsTheStarter(Stop):
    """Takes a checkpoint at a look, and at a later one kills who starts the others."""

    def __init__(self, launcher, draw):
        super().__init__(every=3, look=self.strike)
        self.launcher, self.who = launcher, draw.choice(["launcher", "forker"])
        self.save_at, self.kill_at = sorted(draw.sample(range(1, 6), 2))
        self.looks, self.saved = 0, None

    def strike(self, engine):
        self.looks += 1
        if self.looks == self.save_at:
            tensors = {}
            text = json.dumps(engine.save(tensors))
            self.saved = text, {name: t.clone() for name, t in tensors.items()}, rows_of(engine)
        if self.looks == self.kill_at:
            launcher = self.launcher._process.pid
            forkers = [p for p in descendants(launcher) if descendants(p)]
            os.kill(launcher if self.who == "launcher" else forkers[0], signal.SIGKILL)


KINDS = [c for c in ONE_OF_EACH if c.solver in ("asgd", "sync", "easgd", "allreduce", "hogwild", "all-to-all")]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", KINDS, ids=str)
def test_a_run_goes_on_from_its_checkpoint_after_its_launcher_is_killed(launcher, case, seed):
    own = Launcher()
    strikes = KillsTheStarter(own, random.Random(f"{seed}/launcher/{case}"))
    engine = build(own, case.make(), **setting(case, "5ms"))
    try:
        with pytest.raises(RunError, match="the process that starts the others was lost"):
            engine.run(strikes.watch(engine))
        family = descendants(own._process.pid)
    finally:
        engine.close()
        own.close()
    until(lambda: not any(alive(p) for p in family), "the end of all processes")
    text, tensors, rows = strikes.saved
    engine = build(launcher, case.make(), **setting(case))
    engine.restore(json.loads(text), tensors)
    to_its_end(engine, Stop())
    assert engine.ended == "idle"
    check_books(case, [*(Row(*r) for r in rows), *rows_of(engine)], drawn_by(engine))
