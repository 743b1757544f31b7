"""Processes that die, hang and are interrupted: the run goes on or ends in order, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import torch

from harness import Stop
from offbeat import solver
from offbeat.core import memory
from offbeat.core.errors import ConfigError
from offbeat.engines.local import Fault, Options
from offbeat.lab.config import make
from offbeat.lab.engines import ForTests
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.replaying import replay
from offbeat.lab.watch import Watch
from processes import LIMIT, alive, descendants, sharing, shm_files, state, until
from real import rows_of, run

pytestmark = pytest.mark.processes

# -- workers -----------------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_restarted_and_its_gradient_is_lost(launcher):
    options = Options(faults=(Fault("kill", 3, worker=1),), quota=30 * 8)
    engine = run(launcher, solver("asgd", lr=0.1), workers=2, updates=10**9, options=options)
    assert engine.updates == 60
    assert [r.draw for r in rows_of(engine) if r.outcome == "lost"] == [3]
    assert engine.incidents == ["worker 1 was lost at batch 3 (SIGKILL); restarted"]
    mine = [r.draw for r in rows_of(engine) if r.worker == 1 and r.draw is not None]
    assert mine == list(range(31))  # it goes on with its batches


def test_a_barrier_forms_anew_without_the_lost(launcher):
    options = Options(on_loss="leave out", faults=(Fault("kill", 4, worker=2),))
    engine = run(launcher, solver("sync", lr=0.1), workers=3, updates=12, options=options)
    sizes = [sum(r.version_applied == v for r in rows_of(engine) if r.applied) for v in range(12)]
    assert sizes == [3] * 4 + [2] * 8
    assert "left out" in engine.incidents[0]


@pytest.mark.parametrize("short", [1 << 20, 0], ids=["summed whole", "in slices"])
def test_an_all_reduce_forms_anew_and_its_members_still_agree(launcher, short):
    options = Options(quota=15 * 8, faults=(Fault("kill", 5, worker=0),), short=short)
    engine = run(launcher, solver("local-sgd", H=1, lr=0.1), workers=3, updates=10**9, options=options)
    assert engine.ended == "idle"
    x1, x2 = (engine.arena.published(i).x for i in (1, 2))
    assert torch.equal(x1, x2)
    assert engine.incidents == ["worker 0 was lost at batch 5 (SIGKILL); left out"]  # this method takes nobody in


def test_the_lock_of_a_dead_worker_is_free(launcher):
    options = Options(on_loss="leave out", faults=(Fault("kill", 3, worker=0),), quota=30 * 8)
    engine = run(launcher, solver("hogwild", locked=True, lr=0.1), workers=2, updates=10**9, options=options)
    assert engine.incidents == ["worker 0 was lost at batch 3 (SIGKILL); left out"]
    assert engine.updates == 33


def test_a_lost_gradient_is_as_old_as_the_additions_since_it_was_read(launcher):
    """Nobody tells the server of additions to a shared vector: what it saw last is long past."""
    options = Options(on_loss="leave out", faults=(Fault("kill", 20, worker=0),))
    engine = run(launcher, solver("hogwild", lr=0.1), workers=1, updates=10**9, options=options)
    (lost,) = [r for r in rows_of(engine) if r.outcome == "lost"]
    assert (lost.version_read, lost.version_applied, lost.staleness) == (20, 20, 0)


def test_a_worker_that_hangs_is_named_and_ended(launcher):
    options = Options(patience_seconds=10.0, on_loss="leave out", faults=(Fault("hang", 2, worker=1),))
    engine = run(launcher, solver("ssp", s=1, lr=0.1), workers=2, updates=40, options=options)
    assert engine.updates == 40
    assert "worker 1 was silent" in engine.incidents[0]
    assert "worker 1 was lost at batch 2 (SIGKILL); left out" in engine.incidents[1]


def test_a_run_ends_when_nobody_is_left(launcher):
    options = Options(on_loss="leave out", faults=(Fault("kill", 2, worker=0), Fault("kill", 3, worker=1)))
    engine = run(launcher, solver("asgd", lr=0.1), workers=2, updates=10**9, options=options)
    assert engine.ended == "idle"


def test_losses_and_joins_of_the_cluster_happen_for_real(launcher):
    """The run goes on until a gradient of the one who joins was applied, however late it came."""
    engine = run(
        launcher,
        solver("asgd", lr=0.1),
        workers=3,
        stop=Stop(every=20, look=lambda engine: any(r.worker == 2 and r.applied for r in rows_of(engine))),
        delay="1ms",
        events=["lose 0 at 50ms", "join 2 at 100ms"],
    )
    applied = {i: [r.time for r in rows_of(engine) if r.worker == i and r.applied] for i in range(3)}
    assert max(applied[0], default=0) < min(applied[2])
    assert min(applied[2]) > 0.1
    assert not engine.incidents


# -- the server --------------------------------------------------------------------------------------------------------


@pytest.fixture
def quadratic(launcher, tmp_path):
    def make_run(
        name="asgd",
        options=None,
        *,
        faults=(),
        checkpoint_seconds=0.0,
        updates=300,
        samples=None,
        callbacks=(),
        **local,
    ):
        solver = {"name": name, **(options or {})}
        values = {"task": {"name": "quadratic"}, "solver": solver, "cluster": {"workers": 2, "delay": "2ms"}}
        budget = {"updates": updates} if samples is None else {"samples": samples, "per": "worker"}
        values["evaluate"] = {"every": "100updates"}  # and a checkpoint is then begun, if it is time
        plan = build(make({**values, "budget": budget, "engine": "local", "local": local}))
        aids = ForTests(launcher, faults)
        limits = {"checkpoint_seconds": checkpoint_seconds}
        return execute(plan, tmp_path / "run", callbacks=callbacks, for_tests=aids, **limits)

    return make_run


def test_a_killed_server_goes_on_where_it_was(quadratic, monkeypatch):
    """From its checkpoint after 100 updates, however slow we are, and what it had written down since."""
    save = Watch.checkpoint
    monkeypatch.setattr(Watch, "checkpoint", lambda self: self.engine.updates == 100 and not self.parts and save(self))
    real = quadratic(faults=(Fault("kill", 199, worker=None),))
    assert real.status == "done"
    assert real.summary["updates"] == 300
    assert real.summary["incidents"] == [
        "the server was lost (SIGKILL) after update 199; restarted from update 199, nothing lost"
    ]
    _nothing_is_lost(real)


def test_without_a_checkpoint_it_goes_on_where_it_was_too(quadratic):
    real = quadratic(faults=(Fault("kill", 150, worker=None),), checkpoint_seconds=1000.0)
    _nothing_is_lost(real)


def _nothing_is_lost(real):
    assert real.summary["lost_updates"] == 0
    assert real.summary["updates"] == 300
    assert replay(real.path)["equal"]
    rows = pq.read_table(real.path / "trace.parquet").to_pylist()
    assert [r["version_applied"] for r in rows if r["applied"]] == list(range(300))
    ages = [r["staleness"] for r in rows if r["applied"]]
    assert real.summary["mean_staleness"] == sum(ages) / 300
    assert len({(r["source"], r["draw"]) for r in rows}) == len(rows), "one row a batch"


class Shown:
    """The steps of which a callback was told."""

    def __init__(self):
        self.steps = []

    def on_apply(self, row):
        self.steps.append((row.worker, row.source, row.draw))


def test_steps_that_are_made_again_are_counted_and_shown_once(quadratic):
    """Workers on springs go on for a while without their server; what they did then is made again with another."""
    shown = Shown()
    faults = (Fault("kill", 50, worker=None), Fault("kill", 120, worker=None, life=2))
    real = quadratic("easgd", {"period": 8}, faults=faults, samples=400, callbacks=[shown], checkpoint_seconds=1000.0)
    rows = pq.read_table(real.path / "trace.parquet").to_pylist()
    steps = [(r["worker"], r["source"], r["draw"]) for r in rows if r["applied"]]
    assert len(real.summary["incidents"]) == 2
    assert real.summary["lost_updates"] == 0
    assert real.summary["updates"] == len(steps) == len(rows) == 400
    assert sorted(steps) == [(i, i, k) for i in (0, 1) for k in range(200)]
    assert sorted(shown.steps) == sorted(steps)
    assert replay(real.path)["equal"]


def test_a_server_that_hangs_is_replaced(quadratic):
    real = quadratic(faults=(Fault("hang", 50, worker=None),), updates=100, patience="10s")
    assert real.summary["updates"] == 100
    assert "the server did not answer" in real.summary["incidents"][0]


class Strike:
    """At the first look at a run, when all but the server stand still, something befalls the server."""

    def __init__(self, launcher, number):
        self.launcher, self.number, self.looks = launcher, number, 0

    def __call__(self, engine):
        self.looks += 1
        if self.looks > 1:
            return
        engine.save({})
        (forker,) = [p for p in descendants(self.launcher) if descendants(p)]
        until(lambda: len(self.moving(forker)) == 1, "everybody but the server to stand still")
        os.kill(*self.moving(forker), self.number)
        assert engine.lr is not None  # asks the server
        raise AssertionError("the server answered")

    def moving(self, forker):
        return [p for p in descendants(forker) if state(p) != "T"]


@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGKILL, "was lost (SIGKILL)"), (signal.SIGSTOP, "did not answer")]
)
def test_a_server_that_goes_while_it_is_asked_is_replaced(launcher, number, how):
    engine = run(
        launcher,
        solver("asgd", lr=0.1),
        options=Options(patience_seconds=10.0),
        stop=Stop(updates=20, look=Strike(launcher._process.pid, number)),
    )
    assert engine.incidents == [f"the server {how} after update 20; restarted from update 20, nothing lost"]
    assert engine.updates == 20


# -- from outside ------------------------------------------------------------------------------------------------------


STOPPED_TOO_SOON = """
import os, signal, sys, time
from offbeat.engines.local import forker as forker
from offbeat.engines.local.channel import Channel

bind = forker.die_with_parent
forker.die_with_parent = lambda: (time.sleep(0.5), bind())  # a child that is slow to do it
made = object.__new__(forker.Forker)
made.control, made.children = Channel.pair(None, None)[0], {}
Channel.send = lambda *_: None
child = made._fork("worker", 0, signal.pause, print)
os.kill(child, signal.SIGSTOP)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_that_is_stopped_as_soon_as_it_is_known_still_ends_with_its_parent():
    process = subprocess.Popen([sys.executable, "-c", STOPPED_TOO_SOON], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    try:
        process.wait(LIMIT)
        until(lambda: not alive(child), "the end of the child")
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_after_sigkill_of_the_parent_nothing_is_left(started):
    process = started("--budget", "1000s")
    family = descendants(process.pid)
    assert sharing() >= {process.pid}
    assert not {name for pid in {process.pid, *family} for name in shm_files(pid)}
    process.kill()
    process.wait()
    until(lambda: not any(alive(p) for p in family), "the end of all processes")
    assert not sharing() & family


def test_ctrl_c_ends_the_run_in_order_and_it_can_go_on(started, tmp_path):
    process = started("--budget", "1000s", start_new_session=True)
    family = descendants(process.pid)
    until(lambda: (tmp_path / "run" / "run.json").exists(), "the run's description")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everybody
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, err
    assert "offbeat resume" in err
    until(lambda: not any(alive(p) for p in family), "the end of all processes")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_is_replayed_as_one(started, tmp_path):
    process = started("--budget", "3000updates", "--delay", "2ms", start_new_session=True)
    until(lambda: (tmp_path / "run" / "run.json").exists(), "the run's description")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    again = subprocess.run([sys.executable, "-m", "offbeat", "resume", str(tmp_path / "run")], timeout=LIMIT)
    assert again.returncode == 0
    found = replay(tmp_path / "run")
    assert found["equal"]
    assert found["updates"] == 3000


FULL = """
import resource, offbeat

class Fill:  # from here on no file may grow beyond this: what a full disk does to a writer
    def on_evaluation(self, metrics):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

offbeat.train("quadratic", "asgd", 2, engine="local", budget="400updates", out="full", callbacks=[Fill()])
"""


def test_a_full_disk_is_said_and_nothing_is_left(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", FULL], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        until(lambda: len(descendants(process.pid)) >= 5 or process.poll() is not None, "the workers")
        family = descendants(process.pid)
        _, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "StoreError: cannot write full" in err
    until(lambda: not any(alive(p) for p in family), "the end of all processes")


def test_more_workers_than_memory_is_said_before_anything_starts(launcher, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000)
    with pytest.raises(ConfigError, match=r"2 workers .* need about .* of memory, but only .* available"):
        run(launcher, solver("asgd"), workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asgd", "sync", "easgd", "hogwild", "ssp"])
def test_a_storm_of_kills_changes_nothing_but_the_time(quadratic, name):
    faults = tuple(Fault("kill", 3 + 2 * (k % 4), worker=k % 2, life=1 + k // 2) for k in range(16))
    real = quadratic(name, faults=faults, samples=200)
    assert real.status == "done"
    assert len(real.summary["incidents"]) == 16
    if name != "hogwild":
        assert replay(real.path)["equal"]
