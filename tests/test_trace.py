"""The trace: staleness, gap and times of every gradient, what is lost, and the order of its rows."""

from collections import Counter
from functools import partial

import pytest
import torch

from harness import cluster, simulate
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.sync import Sync
from offbeat.tasks.quadratic import Quadratic

SGD = partial(torch.optim.SGD, lr=0.1)


def test_staleness_counts_the_updates_between_reading_and_applying_and_not_itself():
    # Worker 1 reads version 0, then worker 0 makes three updates, then worker 1's gradient comes.
    schedule = [(1.0, 0), (2.0, 0), (3.0, 0), (4.0, 1), (5.0, 1)]
    out = simulate(Quadratic(1), ASGD(SGD), cluster(2, schedule=schedule), updates=5, gap=True)
    assert [(r["version_read"], r["version_applied"], r["staleness"]) for r in out.applied] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
        (0, 3, 3),
        (4, 4, 0),
    ]
    # lr 0.1 on x^2 / 2 from 1: three fresh steps lead to 0.9^3.
    assert [r["gap"] for r in out.applied] == pytest.approx([0, 0, 0, 1 - 0.9**3, 0], abs=1e-12)


def test_a_row_says_when_its_gradient_was_read_computed_and_applied():
    machines = cluster(1, compute="1s", delay="0.5s", latency="0.25s", service="2s")
    out = simulate(Quadratic(1), ASGD(SGD), machines, updates=2)
    times = [(r["started"], r["computed"], r["time"]) for r in out.applied]
    assert times == [(0.0, 1.5, 3.75), (4.0, 5.5, 7.75)]
    spent = out.sim.breakdown()[0]
    assert (spent["present"], spent["computing"], spent["delayed"]) == (7.75, 2.0, 1.0)
    assert spent["communicating"] + spent["waiting"] == 4.75
    assert spent["communicating"] == pytest.approx(0.75, abs=0.25)  # the last reply is charged when it is sent


# -- losses and the barrier -----------------------------------------------------------------------------------------


def test_sync_never_applies_a_stale_gradient_of_a_lost_worker():
    """It is under way when its worker is lost, and would arrive after the barrier has re-formed."""
    machines = cluster(3, compute=["1s", "1.5s@1", "1.2s@2"], latency="1s", events=["lose 1 at 2.4s"])
    out = simulate(Quadratic(2), Sync(SGD), machines, updates=4)
    assert set(out.taus) == {0}


def test_sync_never_applies_a_stale_gradient_of_a_worker_that_came_back():
    """It comes back while its own earlier gradient still waits at the barrier."""
    machines = cluster(3, compute=["1s", "1.5s@1", "9s@2"], events=["lose 0 at 2s", "join 0 at 8.5s"])
    out = simulate(Quadratic(2), Sync(SGD), machines, updates=4)
    assert set(out.taus) == {0}


def test_sync_goes_on_without_the_lost_and_with_the_joined():
    machines = cluster(4, compute="1s", events=["lose 1 at 2.5s", "join 3 at 4.5s"])
    out = simulate(Quadratic(2), Sync(SGD), machines, updates=8)
    sizes = Counter(r["version_applied"] for r in out.applied)
    # Three until the loss at 2.5 s; two; and three again from the step that waits for the joined worker.
    assert [sizes[v] for v in range(8)] == [3, 3, 2, 2, 3, 3, 3, 3]
    assert [r["outcome"] for r in out.rows].count("lost") == 1


def test_events_of_one_worker_at_one_instant_keep_the_order_in_which_they_were_set():
    """Losses are known from the start: a worker lost at the instant its gradient is due has not delivered it."""
    out = simulate(Quadratic(1), ASGD(SGD), cluster(2, compute="10ms", events=["lose 0 at 10ms"]), updates=3)
    assert [(r["worker"], r["outcome"]) for r in out.rows[:2]] == [(0, "lost"), (1, "applied")]


def test_rows_are_in_the_order_of_time_and_ties_in_the_order_of_workers():
    rows = simulate(Quadratic(1), ASGD(SGD), cluster(5), updates=25).applied
    assert [(r["time"], r["worker"]) for r in rows] == sorted((r["time"], r["worker"]) for r in rows)
