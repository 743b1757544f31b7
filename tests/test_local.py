"""The local engine: the same rules on real processes."""

import subprocess
import sys
import threading
from collections import Counter

import pytest
import torch

from harness import mlp_task
from offbeat import solver
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.local import Fault, Local, Options
from real import rows_of, run, simulated

# -- the same rules, the same bits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "asgd", "dc-asgd", "dana-slim"])
def test_with_one_worker_it_computes_what_the_simulator_computes(launcher, name):
    local = run(launcher, solver(name, lr=0.1), workers=1)
    sim = simulated(solver(name, lr=0.1), workers=1)
    assert torch.equal(local.x, sim.point.x)
    one, other = rows_of(local)[:20], rows_of(sim)[:20]
    for field in ("worker", "source", "draw", "version_read", "version_applied", "gap", "loss", "samples", "correct"):
        assert [getattr(r, field) for r in one] == [getattr(r, field) for r in other], field


@pytest.mark.parametrize("workers", [2, 3])
def test_a_barrier_makes_the_order_of_arrival_irrelevant(launcher, workers):
    local = run(launcher, solver("sync", lr=0.1, momentum=0.9), workers=workers, updates=10)
    sim = simulated(solver("sync", lr=0.1, momentum=0.9), workers=workers, updates=10)
    assert torch.equal(local.x, sim.point.x)


def test_statistics_of_batch_norm_come_back_from_the_workers(launcher):
    task = mlp_task(norm=True)
    local = run(launcher, solver("asgd", lr=0.1), workers=1, task=task, updates=99, options=Options(quota=160))
    sim = simulated(solver("asgd", lr=0.1), workers=1, task=task)
    assert local.ended == "idle"
    assert torch.equal(local.x, sim.point.x)
    for name, value in sim.point.buffers.items():
        assert torch.equal(local.point.buffers[name], value), name


# -- the books -------------------------------------------------------------------------------------------------------


def test_every_batch_drawn_has_a_row_and_staleness_is_conserved(launcher):
    engine = run(launcher, solver("asgd", lr=0.1), workers=3, updates=40)
    rows = rows_of(engine)
    drawn = {(i, k) for i in range(3) for k in range(int(engine.arena.draws[i]))}
    assert {(r.source, r.draw) for r in rows if r.draw is not None} == drawn
    assert Counter(r.outcome for r in rows)["applied"] == 40
    applied = [r for r in rows if r.applied]
    assert [r.version_applied for r in applied] == list(range(40))
    assert all(0 <= r.started <= r.computed <= r.time for r in applied)
    assert engine.samples == 40 * 8
    # Every update makes each of the W - 1 other snapshots in flight one older: sums agree at the end.
    ages = sum(r.staleness for r in rows if r.outcome in ("applied", "in flight"))
    for i in set(range(3)) - {r.worker for r in rows if r.outcome == "in flight"}:  # stopped before its next batch
        ages += 40 - max((r.version_applied + 1 for r in applied if r.worker == i), default=0)
    assert ages == 40 * (3 - 1)


def test_seconds_are_accounted_for(launcher):
    engine = run(launcher, solver("asgd", lr=0.1), workers=2, updates=12, delay=["5ms", "20ms@1"])
    for i, (share, delay) in enumerate(zip(engine.breakdown(), (0.005, 0.025), strict=True)):
        finished = sum(r.applied and r.worker == i for r in rows_of(engine))
        assert share["delayed"] >= finished * delay
        assert share["present"] == pytest.approx(engine.now, rel=0.5)
        assert sum(v for k, v in share.items() if k != "present") == pytest.approx(share["present"], rel=1e-6)


# -- what it cannot do, it says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", [{"latency": "1ms"}, {"service": "1ms"}, {"bandwidth": "1MB/s"}, {"schedule": [[1.0, 0]]}]
)
def test_what_the_machine_itself_decides_cannot_be_set(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        Local(
            mlp_task(),
            solver("asgd"),
            Cluster.parse(workers=1, **setting),
            Feed(200, batch=8, workers=1, seed=0),
            seed=0,
        )


def test_a_task_that_cannot_be_sent_is_named(launcher):
    task = mlp_task()
    task.handle = threading.Lock()
    with pytest.raises(ConfigError, match=r"task cannot be sent.*'handle'.*cannot pickle"):
        run(launcher, solver("asgd"), task=task)


def test_an_error_in_the_model_ends_the_run_with_its_words(launcher):
    options = Options(faults=(Fault("raise", 2, worker=1),))
    with pytest.raises(Exception, match="worker 1 failed at batch 2: RuntimeError: injected"):
        run(launcher, solver("asgd"), options=options, updates=10**9)


# -- the surface -------------------------------------------------------------------------------------------------------


def test_unknown_options_of_the_engine_are_named():
    import offbeat

    with pytest.raises(ConfigError, match="on_los"):
        offbeat.train(mlp_task(), "asgd", 2, engine="local", local={"on_los": "restart"}, out=False)


SCRIPT = """
import offbeat, torch
from torch import nn

class Net(nn.Module):  # known to this script alone, which has no main guard, as a notebook has none
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        print("computing")  # must not get into our output
        return self.layer(x)

x, y = torch.randn(40, 3), torch.randint(0, 2, (40,))
task = offbeat.task(lambda: Net(), lambda out, target: nn.functional.cross_entropy(out, target), (x, y))
run = offbeat.train(task, "asgd", 2, engine="local", budget="30updates", batch=4, out=False, local={"patience": "90s"})
assert run.summary["updates"] == 30, run.summary
assert run.summary["virtual_seconds"] is None
assert sum(run.trace["applied"].to_pylist()) == 30
"""


@pytest.mark.processes
def test_a_script_without_a_main_guard_works_with_classes_and_lambdas_of_its_own(tmp_path):
    done = subprocess.run(
        [sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, cwd=tmp_path, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("computing") <= 1  # the first batch may be tried here; workers print to stderr
