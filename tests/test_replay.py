"""Real runs, computed again from their record."""

import pyarrow.parquet as pq
import pytest
import torch

from offbeat.core.errors import ConfigError
from offbeat.engines.local import Fault
from offbeat.lab.config import make
from offbeat.lab.engines import ForTests
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.replaying import replay


@pytest.fixture
def run(launcher, tmp_path):
    """A run on real processes, in a folder of its own."""

    def make_run(name, *, faults=(), checkpoint_seconds=30.0, **settings):
        budget = {"updates": settings.pop("updates", 150)}
        if samples := settings.pop("samples", None):  # an equal part for each worker: the slowest is waited for
            budget = {"samples": samples, "per": "worker"}
        values = {
            "task": {"name": "quadratic"},
            "solver": {"name": name, **settings.pop("solver", {})},
            "cluster": {"workers": settings.pop("workers", 3)},
            "budget": budget,
            "engine": "local",
            **settings,
        }
        aids = ForTests(launcher, faults)
        return execute(build(make(values)), tmp_path / "run", checkpoint_seconds=checkpoint_seconds, for_tests=aids)

    return make_run


SERIAL = ["asgd", "sync", "dc-asgd", "ringmaster", "softsync", "ssp", "dana-zero", "downpour", "fedbuff", "easgd"]


@pytest.mark.parametrize("solver", SERIAL)
def test_what_a_server_puts_in_order_is_replayed_bit_for_bit(run, solver):
    real = run(solver)
    assert real.status == "done"
    found = replay(real.path)
    assert found["equal"], found
    assert found["distance"] == 0.0
    assert found["params_sha256"] == real.summary["params_sha256"]
    assert found["updates"] == real.summary["updates"] or solver == "easgd"  # its workers step after their last call


def test_gradients_that_were_given_up_are_given_up_again(run):
    real = run("ringmaster", solver={"R": 1, "stops": True}, workers=4, samples=160)
    assert "cancelled" in pq.read_table(real.path / "arrivals.parquet")["what"].to_pylist()
    assert replay(real.path)["equal"]


def test_a_run_that_lost_workers_is_replayed_with_its_losses(run):
    faults = (Fault("kill", 5, worker=1), Fault("kill", 9, worker=0), Fault("kill", 4, worker=1, life=2))
    real = run("asgd", faults=faults, samples=120)
    what = pq.read_table(real.path / "arrivals.parquet")["what"].to_pylist()
    assert len(real.summary["incidents"]) == 3
    assert what.count("lost") == 3 + 3, "and each worker goes when its share is done"
    assert replay(real.path)["equal"]


def test_a_schedule_on_the_work_clock_is_replayed_on_the_workers_clock(run):
    schedule = {"kind": "exponential", "gamma": 0.5, "warmup": "20samples"}
    real = run("fedbuff", solver={"steps": 3, "K": 2}, schedule=schedule, updates=60)
    assert replay(real.path)["equal"]


@pytest.mark.parametrize("solver", ["hogwild", "ea-wild"])
def test_a_run_without_locks_is_near_and_it_is_said_why_it_is_not_equal(run, solver):
    real = run(solver, workers=2)
    found = replay(real.path)
    assert found["relative_distance"] < 0.5
    assert found["equal"] or "without a lock" in found["why"]


def test_the_same_arrivals_under_another_rule(run):
    """Everybody has a part to do and begins with version 0: all first gradients but one are stale, come what may."""
    real = run("asgd", samples=60)
    found = replay(real.path, solver="dc-asgd", settings={"solver.lam": 0.0})
    assert found["what_if"]
    assert found["equal"]  # without compensation it is the same rule
    assert found["calls_left_out"] == 0
    assert not replay(real.path, solver="dc-asgd", settings={"solver.lam": 5.0})["equal"]
    barrier = replay(real.path, solver="sync")
    assert barrier["updates"] < real.summary["updates"]
    calls = pq.read_table(real.path / "arrivals.parquet")["what"].to_pylist().count("call")
    assert barrier["gradients"] + barrier["calls_left_out"] == calls, "who waits at the barrier cannot call again"


def test_what_nobody_puts_in_order_is_refused_with_the_reason(run):
    real = run("ad-psgd")
    with pytest.raises(ConfigError, match="Mix"):
        replay(real.path)


def test_broken_arithmetic_would_be_noticed(run, monkeypatch):
    """A replay that always agreed would prove nothing."""
    real = run("asgd")
    from offbeat.tasks.quadratic import Quadratic

    exact = Quadratic.gradient

    def inexact(self, point, batch, key):
        g = exact(self, point, batch, key)
        g.value = torch.nextafter(g.value, torch.full_like(g.value, 10.0))
        return g

    monkeypatch.setattr(Quadratic, "gradient", inexact)
    assert not replay(real.path)["equal"]
