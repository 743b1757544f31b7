"""Windows, negatives and the kernel, against a slow reference that knows only the formulas."""

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from oracles import skipgram

pytest.importorskip("numba")

from offbeat.tasks.word2vec.kernel import kernel, sigmoid
from offbeat.tasks.word2vec.sampling import keep_thresholds, negative_table
from offbeat.tasks.word2vec.windows import draw_along, draw_at

V, D, K, RADIUS = 30, 12, 3, 4


def text(n=400, seed=0):
    """Encoded text of V words with Zipf's frequencies and sentences of about twenty words."""
    rng = np.random.default_rng(seed)
    words = np.minimum(rng.zipf(1.5, n) - 1, V - 1).astype(np.int32)
    ends = rng.random(n) < 0.05
    ends[-1] = True
    words[ends] = ~words[ends]
    return words


def draws(words, sample=0.02):
    counts = np.bincount(np.where(words < 0, ~words, words), minlength=V).astype(np.int64) + 1
    return (keep_thresholds(counts, sample), *negative_table(counts))


def as_lists(found):
    centres, starts, contexts, negatives = found
    return [
        (int(c), contexts[starts[i] : starts[i + 1]].tolist(), negatives[i].tolist()) for i, c in enumerate(centres)
    ]


def matrices(seed=1, scale=0.5):
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal((V, D))).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("key", [0, 12345, 2**63 - 1])
def test_a_batch_has_the_windows_that_the_reference_draws(pairs, key):
    words = text()
    keep, cut, other = draws(words)
    positions = np.array([0, 3, 399, 200, 201, 3, 57, *range(100, 140)])
    found = draw_at(words, positions, np.uint64(key), keep, cut, other, RADIUS, K, pairs)
    plain = [a.tolist() for a in (words, positions)]
    tables = [keep.tolist(), cut.tolist(), other.tolist()]
    expected = skipgram.windows_at(*plain, key, *tables, RADIUS, K)
    assert as_lists(found) == list(skipgram.with_negatives(expected, *tables[1:], K, pairs))
    assert len(found[0]) > 10


@pytest.mark.parametrize("pairs", [False, True])
def test_a_stretch_has_the_windows_that_the_reference_draws(pairs):
    words = text()
    keep, cut, other = draws(words)
    tables = [keep.tolist(), cut.tolist(), other.tolist()]
    found = draw_along(words, 50, 333, np.uint64(77), keep, cut, other, RADIUS, K, pairs)
    expected = skipgram.windows_along(words.tolist(), 50, 333, 77, *tables, RADIUS, K)
    assert as_lists(found) == list(skipgram.with_negatives(expected, *tables[1:], K, pairs))


@pytest.mark.parametrize("pairs", [False, True])
def test_the_gradient_is_that_of_the_formula_and_of_autograd(pairs):
    words = text()
    keep, cut, other = draws(words)
    found = draw_at(words, np.arange(400), np.uint64(5), keep, cut, other, RADIUS, K, pairs)
    u, v = matrices()
    du, dv = np.zeros_like(u), np.zeros_like(v)
    loss, count = kernel(D, K)(u, v, du, dv, *found, -1.0, 1)
    windows = as_lists(found)
    expected, n, eu, ev = skipgram.loss_and_gradient(u.astype(np.float64), v.astype(np.float64), windows)
    assert count == n
    assert loss == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(du, eu, atol=2e-4)
    np.testing.assert_allclose(dv, ev, atol=2e-4)

    tu, tv = (torch.tensor(m, dtype=torch.float64, requires_grad=True) for m in (u, v))
    total = torch.zeros((), dtype=torch.float64)
    for centre, contexts, negatives in windows:
        others = [o for o in negatives if o != centre]
        f = tu[contexts] @ tv[[centre, *others]].T
        total = total - logsigmoid(f[:, 0]).sum() - logsigmoid(-f[:, 1:]).sum()
    total.backward()
    assert total.item() == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(eu, tu.grad.numpy(), atol=1e-9)
    np.testing.assert_allclose(ev, tv.grad.numpy(), atol=1e-9)


def test_the_point_of_a_gradient_stays_as_it_is():
    words = text()
    found = draw_at(words, np.arange(100), np.uint64(5), *draws(words), RADIUS, K, False)
    u, v = matrices()
    before = u.copy(), v.copy()
    u.flags.writeable = v.flags.writeable = True
    kernel(D, K)(u, v, np.zeros_like(u), np.zeros_like(v), *found, -1.0, 1)
    assert (u == before[0]).all()
    assert (v == before[1]).all()


def test_training_in_place_takes_one_gradient_step_a_window():
    words = text()
    found = draw_along(words, 0, 400, np.uint64(3), *draws(words), RADIUS, K, True)
    u, v = matrices()
    expected = skipgram.train(u.astype(np.float64), v.astype(np.float64), as_lists(found), 0.05)
    kernel(D, K)(u, v, u, v, *found, 0.05, 1)
    np.testing.assert_allclose(u, expected[0], atol=2e-5)
    np.testing.assert_allclose(v, expected[1], atol=2e-5)


def test_training_in_place_with_shared_negatives_differs_only_where_a_window_holds_a_word_twice():
    """A context that comes twice is moved twice, the second time from where the first left it."""
    words = text()
    centres, starts, contexts, negatives = draw_along(words, 0, 400, np.uint64(3), *draws(words), RADIUS, K, False)
    single = [
        i for i in range(len(centres)) if len(set(contexts[starts[i] : starts[i + 1]])) == starts[i + 1] - starts[i]
    ]
    assert len(single) > 20
    lists = [(int(centres[i]), contexts[starts[i] : starts[i + 1]].tolist(), negatives[i].tolist()) for i in single]
    lengths = [len(c) for _, c, _ in lists]
    chosen = (
        centres[single],
        np.concatenate([[0], np.cumsum(lengths)]),
        np.array([c for _, cs, _ in lists for c in cs], dtype=np.int32),
        negatives[single],
    )
    u, v = matrices()
    expected = skipgram.train(u.astype(np.float64), v.astype(np.float64), lists, 0.05)
    kernel(D, K)(u, v, u, v, *chosen, 0.05, 1)
    np.testing.assert_allclose(u, expected[0], atol=2e-5)
    np.testing.assert_allclose(v, expected[1], atol=2e-5)


def test_training_is_the_same_to_the_bit_every_time():
    words = text()
    ends = []
    for _ in range(2):
        u, v = matrices()
        for start in range(0, 400, 100):
            found = draw_along(words, start, start + 100, np.uint64(start), *draws(words), RADIUS, K, False)
            kernel(D, K)(u, v, u, v, *found, 0.05, 64)
        ends.append((u, v))
    assert (ends[0][0] == ends[1][0]).all()
    assert (ends[0][1] == ends[1][1]).all()


@pytest.mark.parametrize(("dim", "count"), [(1, 1), (7, 2), (100, 5), (33, 20)])
def test_any_dimension_and_number_of_negatives_will_do(dim, count):
    words = text(200)
    found = draw_at(words, np.arange(50), np.uint64(9), *draws(words), RADIUS, count, False)
    rng = np.random.default_rng(2)
    u, v = (rng.standard_normal((V, dim)).astype(np.float32) for _ in range(2))
    du, dv = np.zeros_like(u), np.zeros_like(v)
    loss, _ = kernel(dim, count)(u, v, du, dv, *found, -1.0, 1)
    expected, _, eu, ev = skipgram.loss_and_gradient(u.astype(np.float64), v.astype(np.float64), as_lists(found))
    assert loss == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(du, eu, atol=2e-3)
    np.testing.assert_allclose(dv, ev, atol=2e-3)


def test_the_sigmoid_is_within_a_few_roundings_of_the_true_one():
    for x in np.linspace(-30, 30, 2001, dtype=np.float32):
        assert float(sigmoid.py_func(x)) == pytest.approx(1 / (1 + np.exp(-np.float64(x))), abs=3e-7)
    assert np.isnan(kernel_of_nan())


def kernel_of_nan():
    """A NaN in the parameters must be seen in the loss: divergence is found by it."""
    u, v = matrices()
    u[0, 0] = np.nan
    one = np.zeros(1, np.int32)
    windows = (one + 1, np.array([0, 1]), one, np.full((1, K), 2, np.int32))
    return kernel(D, K)(u, v, np.zeros_like(u), np.zeros_like(v), *windows, -1.0, 1)[0]


def test_negatives_come_as_often_as_their_counts_to_three_quarters():
    counts = np.array([1000, 500, 100, 10, 1], dtype=np.int64)
    cut, other = negative_table(counts)
    p = counts**0.75 / (counts**0.75).sum()
    # Closed form: cell k gives k with probability cut / 2^32 and its other word with the rest.
    share = np.zeros(5)
    for k in range(5):
        share[k] += cut[k] / 2**32 / 5
        share[other[k]] += (1 - cut[k] / 2**32) / 5
    np.testing.assert_allclose(share, p, atol=1e-8)


def test_words_are_kept_as_the_formula_says():
    counts = np.array([900, 90, 9, 1], dtype=np.int64)
    f = counts / counts.sum()
    expected = np.minimum(1, np.sqrt(0.01 / f) + 0.01 / f)
    np.testing.assert_allclose(keep_thresholds(counts, 0.01) / 2**32, expected, atol=1e-9)
    assert (keep_thresholds(counts, 0.0) == 2**32 - 1).all()
