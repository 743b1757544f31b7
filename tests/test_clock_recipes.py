"""Recipes of the clock alone: what is measured of a cluster that can be computed by hand."""

import pytest

from offbeat.core.errors import ConfigError
from offbeat.lab.papers import reproducing
from offbeat.lab.papers.clock_cells import clock_cell, clocked, run_clock
from offbeat.lab.papers.expansion import settings
from offbeat.lab.papers.recipe import parse, recipe
from offbeat.lab.papers.stored import stored

BASE = {
    "rounds": 40,
    "measure": "mean staleness",
    "solver": {"name": "asgd"},
    "cluster": {"workers": 4, "compute": "1s"},
}


def measured(tmp_path, **changed) -> float:
    cell = clock_cell(BASE, changed, 0, tmp_path)
    assert run_clock([cell])
    assert cell.outcome["status"] == "done", cell.outcome
    return cell.outcome["measured"]


def test_four_workers_that_take_a_second_bring_four_batches_a_second_and_are_three_stale(tmp_path):
    assert measured(tmp_path) == pytest.approx(3.0)
    assert measured(tmp_path, measure="samples a second", batch=8) == pytest.approx(32.0)
    assert measured(tmp_path, measure="minutes", batch=8, samples=3840.0) == pytest.approx(2.0)
    assert measured(tmp_path, measure="milliseconds a round") == pytest.approx(1000.0)


def test_a_ring_of_four_sends_six_quarters_of_the_vector(tmp_path):
    """Each of 2 (P - 1) steps sends a P-th: 6/4 of 100 MB at 100 MB/s, and six latencies of 10 ms."""
    ring = {"solver.name": "allreduce", "cluster.compute": "1us", "cluster.latency": "10ms"}
    found = measured(tmp_path, measure="milliseconds a round", size="100MB", **ring, **{"cluster.bandwidth": "800Mbps"})
    assert found == pytest.approx(1500 + 60, rel=1e-3)


def test_updates_of_a_worker_are_those_up_to_a_moment(tmp_path):
    """One second a gradient, and two for worker 0: after 10.5 s it has 5 updates, and another one 10."""
    slow = {"measure": "updates of a worker", "cluster.compute": ["1s", "2s@0"], "look.seconds": 10.5}
    assert measured(tmp_path, **slow, **{"look.worker": 0}) == 5
    assert measured(tmp_path, **slow, **{"look.worker": 3}) == 10
    assert (
        clock_cell(BASE, {**slow, "look.worker": 0}, 0, tmp_path).address != clock_cell(BASE, {}, 0, tmp_path).address
    )
    none = clock_cell(BASE, {"measure": "updates of a worker"}, 0, tmp_path)
    assert run_clock([none])
    assert "needs look" in none.outcome["why"]


def test_a_look_that_is_not_given_leaves_the_address_of_a_cell_as_it_was(tmp_path):
    """Of results that were stored before there were looks: the first row of each recipe has the address it had."""
    for name in ("jain2018-figure1", "wongpanich2020-allreduce"):
        r, row = recipe(name), stored(name)[0]
        point = tuple(row[axis] for axis in r.axes)
        found = clock_cell(r.base, settings(r, row["size"], row["variant"], point), row["seed"], tmp_path)
        assert found.address == row["run"]


def test_the_labels_of_figure_1_are_those_counted_by_hand(tmp_path):
    """What each model had applied when it took a gradient in, against what its sender had when it began to compute it.

    Messages take 1 s. Green (model 2, at 1 s), blue (model 1, at 1.5 s) and red (model 3, at 3 s) were begun with
    nothing applied, yellow (model 2, from 1 s to 4.5 s) with green.
    """
    applied_before = {
        ("green", "2"): "",
        ("green", "1"): "blue",  # at 2 s
        ("green", "3"): "",
        ("blue", "1"): "",
        ("blue", "2"): "green",  # at 2.5 s
        ("blue", "3"): "green",
        ("red", "3"): "green blue",
        ("red", "1"): "blue green",  # at 4 s
        ("red", "2"): "green blue",
        ("yellow", "2"): "green blue red",
        ("yellow", "1"): "blue green red",  # at 5.5 s
        ("yellow", "3"): "green blue red",
    }
    r = recipe("tosi2022-figure1")
    for (gradient, model), names in applied_before.items():
        known = {"green"} if gradient == "yellow" else set()
        cell = clock_cell(r.base, settings(r, "quick", r.main, (gradient, model)), 0, tmp_path)
        assert run_clock([cell])
        assert cell.outcome["measured"] == len(known ^ set(names.split())), (gradient, model)


def test_what_is_wrong_with_a_cell_is_one_line():
    with pytest.raises(ConfigError, match="measure must be one of samples a second, minutes"):
        clocked({**BASE, "measure": "happiness"})
    with pytest.raises(ConfigError, match="unknown field `round`"):
        clocked({**BASE, "round": 3})


RECIPE = """
paper = "nobody2000"
place = "Figure 0"
title = "A clock"
clock = true
label = "staleness"
unit = "updates"
scale = 1.0

[base]
rounds = 20
measure = "mean staleness"
[base.solver]
name = "asgd"
[base.cluster]
compute = "normal(1s, 0.1s)"
[axes.workers]
2 = { "cluster.workers" = 2 }
8 = { "cluster.workers" = 8 }
[axes.number]
mean = {}
[variants.plain]
about = "as it stands"
[sizes.quick]
seeds = 2
[sizes.full]
seeds = 2
[published]
rows = ["workers"]
columns = ["number"]
values = [[1.0], [7.0]]
[[claims]]
key = "centre"
quote = "one less than the workers"
place = "Section 1"
rule = "4 in the mean."
statistic = "mean"
of = {}
equals = 4.0
tolerance = 0.5
own_tolerance = 0.5
seeds = 2
"""


def test_a_recipe_of_the_clock_is_run_stored_and_decided_like_any_other(tmp_path, monkeypatch):
    monkeypatch.setattr(reproducing, "recipe", lambda name: parse(name, RECIPE))
    made = reproducing.reproduce("clock", out=tmp_path, progress=False)
    assert [row["value"] for row in made.results] == pytest.approx([1.0, 7.0, 1.0, 7.0], abs=0.5)
    assert made.decisions[0].verdict == "reproduced"
    assert all(row["run"] and row["torch"] and row["ended"] for row in made.results)
    assert made.save(tmp_path / "clock.parquet").exists()
