"""Stale gradients against fresh ones: the numbers are right, and looking changes nothing."""

import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional as F

import offbeat
from harness import mlp_task
from offbeat.core.errors import ConfigError

CLUSTER = {"workers": 4, "compute": "normal(1s, 0.3s)"}


def train(tmp_path, name, task=None, **options):
    return offbeat.train(
        mlp_task(lambda: torch.nn.Dropout(0.3)) if task is None else task,
        offbeat.solver("asgd", lr=0.1, momentum=0.5),
        offbeat.Cluster.parse(**CLUSTER),
        budget="60updates",
        batch=8,
        out=tmp_path / name,
        **options,
    )


def test_looking_at_fresh_gradients_changes_no_bit_of_the_run(tmp_path):
    plain = train(tmp_path, "plain")
    looked = train(tmp_path, "looked", diagnose_every=1)
    assert torch.equal(plain.params, looked.params)
    assert plain.trace.equals(looked.trace)
    assert plain.metrics.equals(looked.metrics)
    assert pq.read_table(tmp_path / "looked" / "diagnostics.parquet").num_rows == 60


def test_every_so_many_gradients_are_looked_at(tmp_path):
    train(tmp_path, "a", diagnose_every=7)
    assert pq.read_table(tmp_path / "a" / "diagnostics.parquet").num_rows == 60 // 7


def test_a_gradient_that_is_not_stale_is_its_own_fresh_one(tmp_path):
    run = offbeat.train(
        mlp_task(),
        "sync",
        3,
        budget="20updates",
        batch=8,
        out=tmp_path / "a",
        diagnose_every=1,
        evaluate_every="10updates",
    )
    rows = pq.read_table(run.path / "diagnostics.parquet").to_pylist()
    assert {r["staleness"] for r in rows} == {0}
    assert [r["cosine"] for r in rows] == pytest.approx([1.0] * len(rows), abs=1e-6)
    assert [r["norm_ratio"] for r in rows] == pytest.approx([1.0] * len(rows), abs=1e-6)


def test_on_a_quadratic_the_numbers_are_those_of_its_gradients(tmp_path):
    """One feature and no noise: f(x) = mean (a x - 1)^2 / 2, so the gradient is linear in x, the cosine a sign."""
    inputs, target = torch.ones(32, 1), torch.ones(32, 1)
    model = torch.nn.Linear(1, 1, bias=False)
    task = offbeat.task(model, lambda out, y: F.mse_loss(out, y) / 2, (inputs, target), (inputs, target))
    offbeat.train(
        task,
        offbeat.solver("asgd", lr=0.2),
        offbeat.Cluster.parse(workers=3),
        budget="12updates",
        batch=4,
        out=tmp_path / "a",
        diagnose_every=1,
    )
    rows = pq.read_table(tmp_path / "a" / "diagnostics.parquet").to_pylist()
    x = [float(model.weight.detach())]
    for k, row in enumerate(rows):  # x_{k+1} = x_k - 0.2 (x_{k - tau} - 1), by hand
        stale, fresh = x[k - row["staleness"]] - 1, x[k] - 1
        assert row["norm_ratio"] == pytest.approx(abs(stale / fresh), rel=1e-4)
        assert row["cosine"] == pytest.approx(1.0 if stale * fresh > 0 else -1.0, abs=1e-5)
        x.append(x[k] - 0.2 * stale)
    assert {r["staleness"] for r in rows} == {0, 1, 2}


def test_a_wall_clock_does_not_stop_for_it(tmp_path):
    with pytest.raises(ConfigError, match="needs engine sim"):
        offbeat.train("digits", "asgd", 2, engine="local", budget="5updates", out=tmp_path / "a", diagnose_every=1)
