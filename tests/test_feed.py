"""Who gets which samples when: batches, permutations and random numbers by their position."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import offbeat
from harness import cluster, mlp_task, simulate
from offbeat.core.feed import Feed
from offbeat.core.permutation import Permutation
from offbeat.core.seeds import BLOCK, Draws, generator, key64
from offbeat.solvers.asgd import ASGD

SGD = partial(torch.optim.SGD, lr=0.1)


@given(n=st.integers(1, 60), batch=st.integers(1, 40), seed=st.integers(0, 99), source=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_every_pass_of_a_source_has_every_sample_once(n, batch, seed, source):
    if batch > n:
        with pytest.raises(offbeat.ConfigError, match="use a smaller batch"):
            Feed(n, batch=batch, workers=4, seed=seed)
        return
    feed = Feed(n, batch=batch, workers=4, seed=seed)
    passes = 3
    draws = -(-passes * n // batch)
    flat = np.concatenate([feed.indices(source, k) for k in range(draws)])
    for p in range(passes):
        assert sorted(flat[p * n : (p + 1) * n]) == list(range(n)), f"pass {p}"
    # Read anywhere, in any order: the same.
    again = Feed(n, batch=batch, workers=4, seed=seed)
    for k in reversed(range(draws)):
        assert np.array_equal(again.indices(source, k), flat[k * batch : (k + 1) * batch])


def test_passes_sources_and_seeds_are_shuffled_differently():
    def order(seed, source, epoch):
        return tuple(Permutation(50, seed=seed, stream="data", source=source, epoch=epoch)(np.arange(50)))

    orders = [order(s, w, e) for s in range(3) for w in range(3) for e in range(3)]
    assert len(set(orders)) == 27


@given(n=st.integers(1, 3000), seed=st.integers(0, 10**9), epoch=st.integers(0, 10**6))
@settings(deadline=None, max_examples=100)
def test_a_permutation_is_a_bijection(n, seed, epoch):
    sigma = Permutation(n, seed=seed, stream="data", source=1, epoch=epoch)
    assert sorted(sigma(np.arange(n))) == list(range(n))


def test_a_permutation_looks_uniform():
    """All 24 orders of 4, and every (position, value) of 11, against chi-square at about 1 in 10,000."""
    trials = 4800
    orders = Counter(
        tuple(Permutation(4, seed=0, stream="data", source=0, epoch=e)(np.arange(4))) for e in range(trials)
    )
    expected = trials / 24
    assert len(orders) == 24
    assert sum((c - expected) ** 2 / expected for c in orders.values()) < 56.0  # 23 degrees of freedom
    table = np.zeros((11, 11))
    for e in range(3300):
        table[np.arange(11), Permutation(11, seed=1, stream="data", source=0, epoch=e)(np.arange(11))] += 1
    assert ((table - 300) ** 2 / 300).sum() < 160.0  # 100 degrees of freedom


def test_a_shard_is_covered_once_a_pass_and_no_sample_leaves_it():
    shards = [np.array([3, 5, 7, 11, 13]), np.array([0, 1, 2, 4, 6, 8])]
    feed = Feed(14, batch=2, workers=2, seed=0, shards=shards)
    first = np.concatenate([feed.indices(0, k) for k in range(5)])
    assert sorted(first[:5]) == sorted(first[5:]) == [3, 5, 7, 11, 13]
    assert sorted(np.concatenate([feed.indices(1, k) for k in range(3)])) == [0, 1, 2, 4, 6, 8]


def test_replacement_draws_with_replacement():
    feed = Feed(1000, batch=100, workers=1, seed=0, sampling="replacement")
    flat = np.concatenate([feed.indices(0, k) for k in range(10)])
    # 1,000 draws of 1,000: about 632 distinct.
    assert 590 < len(set(flat.tolist())) < 675


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_interleaved_workers_get_what_one_worker_draws(workers):
    feed = Feed(60, batch=4, workers=workers, seed=1, interleaved=True)
    one = Feed(60, batch=4, workers=1, seed=1)
    alone = [one.take(0) for _ in range(4 * workers)]
    together = [feed.take(i) for _ in range(4) for i in range(workers)]
    assert together == alone
    assert all(np.array_equal(feed.indices(*d), one.indices(*d)) for d in together)


def test_the_kth_batch_of_a_worker_is_draw_k_of_its_source_from_0_on():
    out = simulate(mlp_task(), ASGD(SGD), cluster(3, compute="exponential(1s)"), updates=50, batch=4)
    for i in range(3):
        mine = [(r["source"], r["draw"]) for r in out.rows if r["worker"] == i]
        assert mine == [(i, k) for k in range(len(mine))]


def test_random_numbers_are_a_function_of_their_position():
    def sample(rng, n):
        return rng.exponential(1.0, n)

    one = Draws(sample, seed=3, stream="compute", source=2)
    values = [one.next() for _ in range(600)]
    for position in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 599):
        at = Draws(sample, seed=3, stream="compute", source=2, position=position)
        assert at.next() == values[position]
    first = generator(3, "compute", 2, 0).exponential(1.0, BLOCK)
    assert values[:BLOCK] == first.tolist()
    assert len(set(values)) == 600
    keys = {key64(s, stream, i, k) for s in range(3) for stream in "ab" for i in range(5) for k in range(50)}
    assert len(keys) == 3 * 2 * 5 * 50
