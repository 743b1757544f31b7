"""Sparse problems: hypergraph quantities against a count by hand, sparse logistic regression against autograd."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

import offbeat
from offbeat.core.errors import ConfigError, DataError
from offbeat.core.task import Point
from offbeat.tasks import sparsity
from offbeat.tasks.sparse_logistic import SparseLogistic
from offbeat.tasks.sparsity import hypergraph


def by_counting(matrix: np.ndarray) -> tuple[int, float, float]:
    """Equations (5) to (7) of wongpanich2020, edge by edge, node by node."""
    edges = [{v for v, value in enumerate(row) if value != 0} for row in matrix]
    omega = max(len(e) for e in edges)
    delta = max(sum(v in e for e in edges) for v in range(matrix.shape[1])) / len(edges)
    rho = max(sum(bool(e & other) for other in edges) for e in edges) / len(edges)
    return omega, delta, rho


@given(
    n=st.integers(1, 30),
    d=st.integers(1, 30),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    at_once=st.sampled_from([1, 40, 10**6]),
)
@settings(max_examples=120, deadline=None)
def test_the_hypergraph_quantities_are_those_of_a_count_by_hand(n, d, share, seed, at_once):
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((n, d)) < share, rng.standard_normal((n, d)), 0.0)
    before, sparsity._ENTRIES = sparsity._ENTRIES, at_once
    try:
        assert hypergraph(matrix) == pytest.approx(by_counting(matrix))
        assert hypergraph(sparse.csc_matrix(matrix)) == pytest.approx(by_counting(matrix))
    finally:
        sparsity._ENTRIES = before


def test_entries_that_cancel_or_are_stored_zeros_do_not_confuse_the_count():
    stored = sparse.csr_array(([0.0, 1.0, -1.0, 1.0], ([0, 0, 1, 1], [0, 1, 1, 2])), shape=(2, 3))
    assert hypergraph(stored) == by_counting(stored.toarray()) == (2, 1.0, 1.0)
    assert hypergraph(np.ones((2, 256))) == (256, 1.0, 1.0)  # as many as would overflow a byte
    opposite = np.array([[1.0, 1.0], [1.0, -1.0]])  # their product is 0, but they do meet
    assert hypergraph(opposite).rho == 1.0


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0)])
def test_sparsity_of_what_is_no_matrix_is_refused(shape):
    with pytest.raises(DataError, match="a matrix with rows and columns"):
        hypergraph(np.zeros(shape))


def test_groups_have_the_sparsity_they_promise():
    task = SparseLogistic(samples=400, features=200, nonzeros=5, support="groups")
    assert task.sparsity == (5, 5 / 200, 5 / 200)
    said = task.describe()
    assert (said["omega"], said["delta"], said["rho"]) == (5, 0.025, 0.025)


def test_random_supports_have_the_sparsity_that_chance_gives_them():
    """A set of k of d meets another with probability 1 - C(d-k, k) / C(d, k)."""
    n, d, k = 2000, 400, 6
    got = SparseLogistic(samples=n, features=d, nonzeros=k).sparsity
    meet = 1 - np.prod([(d - k - i) / (d - i) for i in range(k)])
    assert got.omega == k
    assert meet < got.rho < meet + 6 * np.sqrt(meet * (1 - meet) / n)  # the largest of n
    assert k / d < got.delta < k / d + 6 * np.sqrt(k / d / n)


def dense(task: SparseLogistic) -> tuple[np.ndarray, np.ndarray]:
    columns, values, y = (t.numpy() for t in task._train.all())
    z = np.zeros((len(y), task.features))
    np.put_along_axis(z, columns, values, axis=1)
    return z, y


def test_the_gradient_over_all_samples_is_that_of_the_regularised_objective():
    task = SparseLogistic(samples=60, features=40, nonzeros=4, l2=0.03)
    z, y = dense(task)
    used = torch.from_numpy((z != 0).any(0))
    x = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    margin = torch.from_numpy(y) * (torch.from_numpy(z) @ x)
    objective = torch.log1p(torch.exp(-margin)).mean() + 0.03 / 2 * (x * x)[used].sum()
    (expected,) = torch.autograd.grad(objective, x)
    got = task.gradient(Point(x.detach()), np.arange(60), 0)
    torch.testing.assert_close(got.value, expected)
    assert got.loss == pytest.approx(objective.item())


def test_one_samples_gradient_touches_its_own_components_alone():
    task = SparseLogistic(samples=60, features=40, nonzeros=4, l2=0.1)
    z, _ = dense(task)
    x = torch.ones(40, dtype=torch.float64)
    for i in range(60):
        touched = task.gradient(Point(x), np.array([i]), 0).value != 0
        assert np.array_equal(touched.numpy(), z[i] != 0)


def test_asynchronous_training_comes_near_the_best_there_is(tmp_path):
    task = SparseLogistic(samples=400, features=50, nonzeros=4)
    everything = np.arange(400)

    def objective(x):
        found = task.gradient(Point(torch.from_numpy(x)), everything, 0)
        return found.loss, found.value.numpy()

    best = minimize(objective, np.zeros(50), jac=True, method="L-BFGS-B").fun
    solver = offbeat.solver("asgd", lr=3.0)
    run = offbeat.train(task, solver, 4, budget="8epochs", batch=4, out=tmp_path, pool=0)
    start, end = np.log(2), objective(run.params.numpy())[0]
    assert best < end < best + 0.2 * (start - best)
    said = json.loads((tmp_path / "run.json").read_text())["task"]
    assert (said["omega"], said["rho"]) == (4, task.sparsity.rho)
    scores = json.loads((tmp_path / "evaluation.json").read_text())["test"]
    assert scores["accuracy"] == pytest.approx(run.summary["accuracy"])


def test_the_data_do_not_depend_on_the_run():
    a, b, c = SparseLogistic(), SparseLogistic(), SparseLogistic(data_seed=1)
    assert np.array_equal(dense(a)[0], dense(b)[0])
    assert not np.array_equal(dense(a)[0], dense(c)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"support": "some"}, "unknown task.support 'some'"),
        ({"nonzeros": 2000}, "1 <= nonzeros <= features"),
        ({"support": "groups", "nonzeros": 7}, "groups of 7 must divide 1000 features"),
        ({"samples": 1}, "samples >= 2"),
        ({"l2": -1.0}, "l2 >= 0"),
    ],
)
def test_what_sparse_logistic_cannot_do_it_says(options, message):
    with pytest.raises(ConfigError, match=message):
        offbeat.named_task("sparse-logistic", **options)
