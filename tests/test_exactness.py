"""The simulator is parallel and exact: any pool gives the same bits."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import offbeat
from harness import cluster, mlp_task, points, simulate
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.sync import Sync
from random_tasks import TASKS, Gumbel

SGD = partial(torch.optim.SGD, lr=0.1)


def fingerprint(run: offbeat.Run) -> tuple[object, ...]:
    buffers = {n: b.tolist() for n, b in (run.point.buffers or {}).items()}
    return run.params.tolist(), buffers, run.trace.to_pylist(), run.metrics.to_pylist(), run.status


def train(task, solver, pool, **options):
    settings = {"budget": "480samples", "evaluate_every": "7updates", "batch": 8, "seed": 3, **options}
    machines = cluster(6, compute="lognormal(10ms,6ms)", delay="20ms@0")
    return offbeat.train(task, solver, machines, out=False, pool=pool, **settings)


@pytest.mark.parametrize("solver", [ASGD, Sync])
@pytest.mark.parametrize("name", TASKS)
def test_any_pool_gives_the_same_parameters_trace_and_metrics(name, solver):
    opt = partial(torch.optim.Adam, lr=0.01) if name == "dropout" else SGD
    expected = fingerprint(train(TASKS[name](), solver(opt), 0))
    assert len(set(expected[0])) > 3
    for pool in (2, 3, 4):
        assert fingerprint(train(TASKS[name](), solver(opt), pool)) == expected, f"{pool} threads"


def test_the_state_of_global_generators_does_not_matter_and_is_left_alone():
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        runs += [fingerprint(train(TASKS[n](), ASGD(SGD), 2, budget="15updates")) for n in ("dropout", "numpy data")]
        assert torch.equal(torch.random.get_rng_state(), before[0])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert runs[0] == runs[2]
    assert runs[1] == runs[3]


def test_a_model_that_draws_in_evaluation_too_is_exact():
    test = points(1500, 2)

    def run(pool, every="2updates"):
        torch.manual_seed(pool)
        task = offbeat.task(
            lambda: nn.Sequential(nn.Linear(12, 16), Gumbel(), nn.Linear(16, 4)), F.cross_entropy, points(200), test
        )
        return train(task, ASGD(SGD), pool, budget="80updates", evaluate_every=every)

    expected = fingerprint(run(0))
    for pool in (2, 3, 4):
        got = fingerprint(run(pool))
        assert got[0] == expected[0], f"parameters with {pool} threads"
        assert got[3] == expected[3], f"metrics with {pool} threads"


@pytest.mark.parametrize("name", ["dropout", "batch norm", "numpy data"])
def test_watching_does_not_change_the_course(name):
    seldom = train(TASKS[name](), ASGD(SGD), 2, evaluate_every="1000updates")
    always = train(TASKS[name](), ASGD(SGD), 2, evaluate_every="1updates", gap=False, keep_best=False)
    assert torch.equal(seldom.params, always.params)
    assert seldom.trace.drop_columns("gap").equals(always.trace.drop_columns("gap"))


def test_draws_depend_on_source_and_draw_and_not_on_timing():
    """Other machines, same solver: worker i's k-th batch holds the same samples and the same dropout."""
    rows = []
    for compute in ("10ms", "exponential(30ms)"):
        frozen = ASGD(partial(torch.optim.SGD, lr=1e-30))
        task = mlp_task(lambda: nn.Dropout(0.4))
        out = simulate(task, frozen, cluster(4, compute=compute), updates=80, batch=8)
        rows.append({(r["source"], r["draw"]): r["loss"] for r in out.applied})
    both = rows[0].keys() & rows[1].keys()
    assert len(both) > 40
    assert all(rows[0][k] == rows[1][k] for k in both)


def test_a_seed_changes_data_dropout_times_and_weights():
    runs = [train(TASKS["dropout"](), ASGD(SGD), 0, seed=s, budget="20updates") for s in (0, 1)]
    assert runs[0].trace["loss"] != runs[1].trace["loss"]
    assert runs[0].trace["time"] != runs[1].trace["time"]
    assert not torch.equal(runs[0].params, runs[1].params)


def test_the_pool_really_computes_ahead():
    """More than one gradient at a time, else the tests above would show nothing."""
    import threading

    task, seen = mlp_task(), set()
    inner = task.gradient

    def gradient(point, batch, key):
        seen.add(threading.current_thread().name)
        return inner(point, batch, key)

    task.gradient = gradient
    train(task, ASGD(SGD), 2)
    assert len(seen) == 2
