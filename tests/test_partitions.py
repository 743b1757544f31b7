"""Who gets which samples: exact covers, closed forms, and what is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import offbeat
from harness import mlp_task, points
from offbeat.core.errors import ConfigError
from offbeat.data import holdout
from offbeat.data.balance import statistics
from offbeat.data.partitions import Stock, parse

LABELS = np.random.default_rng(0).integers(0, 10, 1000)
SPLITS = ["split", "split-labels", "split-labels(shuffled)", "dirichlet(0.5)", "dirichlet(100)", "size-skew(1.3)"]


def divide(text: str, workers: int, *, labels=LABELS, seed: int = 0, least: int = 1, size: int | None = None):
    cut = parse(text).divide
    assert cut is not None
    return cut(Stock(len(labels) if size is None else size, workers, seed, least, labels))


def is_exact_cover(parts, size: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(size))


# Splits


@pytest.mark.parametrize("text", SPLITS)
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 10])
def test_every_sample_belongs_to_one_worker(text, workers):
    parts = divide(text, workers)
    assert len(parts) == workers
    assert all(len(p) for p in parts)
    assert is_exact_cover(parts, 1000)


@given(
    text=st.sampled_from(SPLITS),
    workers=st.integers(1, 8),
    seed=st.integers(0, 2**40),
    size=st.integers(40, 300),
    classes=st.integers(2, 12),
)
@settings(max_examples=80, deadline=None)
def test_every_split_is_an_exact_cover_or_a_refusal(text, workers, seed, size, classes):
    labels = np.random.default_rng(seed).integers(0, classes, size)
    if "split-labels" in text and workers > len(np.unique(labels)):
        with pytest.raises(ConfigError, match="gives each worker labels of its own"):
            divide(text, workers, labels=labels, seed=seed)
    else:
        assert is_exact_cover(divide(text, workers, labels=labels, seed=seed), size)


@pytest.mark.parametrize("text", ["split", "split-labels(shuffled)", "dirichlet(0.5)", "size-skew(1)"])
def test_a_split_is_a_function_of_the_seed(text):
    def same(a, b):
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    assert same(divide(text, 4, seed=3), divide(text, 4, seed=3))
    assert not same(divide(text, 4, seed=3), divide(text, 4, seed=4))


@pytest.mark.parametrize("workers", [2, 3, 4, 6, 7, 10])
def test_split_labels_leaves_no_label_with_two_workers_also_where_workers_do_not_divide_them(workers):
    for text in ("split-labels", "split-labels(shuffled)"):
        owned = [set(LABELS[part]) for part in divide(text, workers)]
        assert sum(len(o) for o in owned) == 10  # a partition of the labels ...
        assert set.union(*owned) == set(range(10))
        assert max(map(len, owned)) - min(map(len, owned)) <= 1  # ... as even as can be


def test_split_labels_in_order_is_that_of_the_paper():
    assert [sorted(set(LABELS[part])) for part in divide("split-labels", 3)] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_an_equal_split_is_equal():
    assert sorted(len(p) for p in divide("split", 7)) == [142, 143, 143, 143, 143, 143, 143]


@pytest.mark.parametrize(("s", "workers"), [(0.0, 4), (1.0, 4), (2.5, 6), (40.0, 3)])
def test_size_skew_follows_its_power_law(s, workers):
    sizes = np.array([len(p) for p in divide(f"size-skew({s})", workers)])
    law = np.arange(1, workers + 1) ** -s
    assert np.abs(sizes - 1 - law / law.sum() * (1000 - workers)).max() < 1
    assert np.all(np.diff(sizes) <= 0)


def test_dirichlet_shares_have_the_moments_of_the_dirichlet_distribution():
    """E p_i = 1 / W and Var p_i = (1/W) (1 - 1/W) / (W alpha + 1), over labels and seeds."""
    workers, alpha, per_label = 5, 0.7, 2000
    labels = np.repeat(np.arange(10), per_label)
    shares = []
    for seed in range(120):
        histograms = statistics(
            divide(f"dirichlet({alpha})", workers, labels=labels, seed=seed), len(labels), workers, labels
        )["histograms"]
        shares.append(np.array(histograms) / per_label)
    p = np.concatenate([s.T for s in shares])  # one row a draw from the distribution
    n = len(p)
    variance = (1 / workers) * (1 - 1 / workers) / (workers * alpha + 1)
    assert np.abs(p.mean(0) - 1 / workers).max() < 4 * np.sqrt(variance / n)
    assert np.abs(p.var(0) / variance - 1).max() < 0.15  # the relative error of a variance is about sqrt(2 / n) = 0.04
    pairs = np.cov(p.T)[np.triu_indices(workers, 1)]
    assert np.abs(pairs.mean() / (-variance / (workers - 1)) - 1) < 0.1  # they sum to one


def test_dirichlet_draws_again_until_everybody_can_fill_a_batch():
    free = [len(p) for p in divide("dirichlet(0.3)", 8, least=1, seed=1)]
    assert min(free) < 70
    assert min(len(p) for p in divide("dirichlet(0.3)", 8, least=70, seed=1)) >= 70


# How uneven


def test_statistics_count_what_each_worker_has():
    parts = divide("dirichlet(0.4)", 3)
    got = statistics(parts, 1000, 3, LABELS)
    assert got["sizes"] == [len(p) for p in parts]
    for worker, part in enumerate(parts):
        assert got["histograms"][worker] == [int((LABELS[part] == c).sum()) for c in range(10)]
        mine = [(LABELS[part] == c).mean() for c in range(10)]
        everybody = [np.equal(LABELS, c).mean() for c in range(10)]
        distance = sum(abs(a - b) for a, b in zip(mine, everybody, strict=True)) / 2
        assert got["label_skew"][worker] == pytest.approx(distance)


def test_skew_has_its_closed_forms_at_the_extremes():
    labels = np.tile(np.arange(5), 20)
    shared = statistics(None, 100, 4, labels)
    assert (shared["size_skew"], shared["mean_label_skew"], shared["sizes"]) == (0.0, 0.0, [100] * 4)
    alone = statistics(divide("split-labels", 5, labels=labels), 100, 5, labels)
    assert alone["label_skew"] == pytest.approx([0.8] * 5)  # 1 - 1/5: one label of five
    uneven = statistics([np.arange(70), np.arange(70, 100)], 100, 2, None)
    assert uneven["size_skew"] == pytest.approx(0.2)
    assert "histograms" not in uneven


def test_labels_need_not_start_at_zero():
    labels = np.array([3, 7, 7, 3])
    assert statistics(None, 4, 1, labels)["labels"] == [3, 7]
    assert [sorted(set(labels[p])) for p in divide("split-labels", 2, labels=labels)] == [[3], [7]]


# Folds and shares


@pytest.mark.parametrize("k", [2, 3, 10])
def test_folds_are_disjoint_cover_everything_and_keep_the_labels_in_proportion(k):
    parts = holdout.folds(1000, k, 5, LABELS)
    assert is_exact_cover(parts, 1000)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for c in range(10):
        counts = [int((LABELS[p] == c).sum()) for p in parts]
        assert max(counts) - min(counts) <= 1
    other = holdout.folds(1000, k, 6, LABELS)
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


@pytest.mark.parametrize("part", [0.01, 0.1, 0.33, 0.5])
def test_a_validation_share_keeps_the_labels_in_proportion(part):
    held_out = holdout.share(1000, part, 0, LABELS)
    assert len(held_out) == len(set(held_out)) == round(part * 1000)
    for c in range(10):
        assert abs((LABELS[held_out] == c).sum() - part * np.equal(LABELS, c).sum()) <= 1


def test_folds_without_labels_are_folds_too():
    assert is_exact_cover(holdout.folds(11, 4, 0), 11)
    assert len(holdout.share(11, 0.2, 0)) == 2


def test_validation_is_what_a_run_evaluates_on_and_the_test_set_waits_for_the_end(tmp_path, monkeypatch):
    from offbeat.lab.config import make
    from offbeat.lab.runs.execute import execute
    from offbeat.lab.runs.plan import build

    values = {"task": {"name": "digits"}, "budget": {"updates": 3}, "data": {"folds": 4, "fold": 2}}
    plan = build(make(values))
    labels = plan.task.labels
    assert plan.task.size == len(labels) == 1437 - 1437 // 4
    run = execute(plan, tmp_path / "run", pool=0)
    scores = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert (scores["validation"]["samples"], scores["test"]["samples"]) == (1437 // 4, 360)
    last = run.metrics.to_pylist()[-1]
    assert last["accuracy"] == pytest.approx(scores["validation"]["accuracy"])
    assert last["loss"] == pytest.approx(scores["validation"]["loss"])


def test_folds_from_python_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = mlp_task(fingerprint="mlp")
    runs = [
        offbeat.train(task, "asgd", 2, budget="3updates", batch=8, folds=3, fold=k, pool=0) for k in (None, 0, 1, 2)
    ]
    assert runs[0].path == runs[1].path
    assert len({run.path for run in runs}) == 3
    assert [run.evaluation["validation"]["samples"] for run in runs[1:]] == [67, 67, 66]
    with pytest.raises(ConfigError, match=r"data.fold must be below data.folds, got 3 of 3"):
        offbeat.train(task, "asgd", 2, budget="3updates", batch=8, folds=3, fold=3)
    with pytest.raises(ConfigError, match=r"validation must be less than 1, got 1.5"):
        offbeat.train(task, "asgd", 2, budget="3updates", batch=8, validation=1.5)
    with pytest.raises(ConfigError, match="task 'quadratic' cannot hold out a validation set"):
        offbeat.train("quadratic", "asgd", 2, budget="3updates", validation=0.1)


def test_folds_of_a_task_together_are_its_training_set():
    task = mlp_task()
    parts = holdout.folds(200, 3, 0, task.labels)
    seen = [task.hold_out(p)._validation.batch(np.arange(len(p)))[0] for p in parts]
    kept = [task.hold_out(p)._train.batch(np.arange(200 - len(p)))[0] for p in parts]
    x, _ = points(200)
    for held, rest in zip(seen, kept, strict=True):
        both = torch.cat([held, rest])
        assert torch.equal(both[both[:, 0].argsort()], x[x[:, 0].argsort()])
    whole = torch.cat(seen)
    assert torch.equal(whole[whole[:, 0].argsort()], x[x[:, 0].argsort()])


# In a run


def test_a_run_folder_says_who_had_which_labels(tmp_path):
    task = mlp_task()
    offbeat.train(task, "asgd", 3, budget="5updates", batch=4, partition="split-labels", out=tmp_path, pool=0)
    got = json.loads((tmp_path / "partition.json").read_text())
    assert (got["partition"], got["workers"], got["samples"]) == ("split-labels", 3, 200)
    assert [[c for c, n in enumerate(row) if n] for row in got["histograms"]] == [[0, 1], [2], [3]]
    assert sum(map(sum, got["histograms"])) == 200


def test_in_a_run_a_dirichlet_split_leaves_everybody_a_batch():
    """Without this, small shares would be refused as too small for a batch, more often than not."""
    for seed in range(4):
        run = offbeat.train(
            mlp_task(), "asgd", 5, budget="5updates", batch=20, partition="dirichlet(0.3)", seed=seed, out=False, pool=0
        )
        assert run.status == "done"


def test_workers_compute_on_their_own_samples_only(tmp_path):
    x = torch.arange(40.0)[:, None]
    y = torch.arange(40) % 4
    seen: dict[int, set[int]] = {}

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 4)

        def forward(self, inputs):
            return self.layer(inputs)

    task = offbeat.task(Spy, F.cross_entropy, (x, y))
    run = offbeat.train(task, "asgd", 4, budget="40updates", batch=5, partition="split-labels", out=False, pool=0)
    shards = divide("split-labels", 4, labels=y.numpy())
    from offbeat.core.feed import Feed

    feed = Feed(40, batch=5, workers=4, seed=0, shards=shards)
    for row in run.trace.to_pylist():
        seen.setdefault(row["worker"], set()).update(feed.indices(row["source"], row["draw"]).tolist())
    assert dict(sorted(seen.items())) == {w: set(p.tolist()) for w, p in enumerate(shards)}


def test_sampling_without_replacement_gives_every_worker_epochs_of_its_own():
    from offbeat.core.feed import Feed

    shards = divide("size-skew(1)", 3, size=60, labels=LABELS[:60])
    feed = Feed(60, batch=1, workers=3, seed=0, shards=shards)
    for worker, shard in enumerate(shards):
        draws = [int(feed.indices(worker, k)[0]) for k in range(3 * len(shard))]
        epochs = [draws[i * len(shard) : (i + 1) * len(shard)] for i in range(3)]
        assert all(sorted(e) == shard.tolist() for e in epochs)  # each sample once an epoch ...
        assert epochs[0] != epochs[1]  # ... in another order


def test_sampling_with_replacement_leaves_out_a_share_of_1_over_e():
    from offbeat.core.feed import Feed

    feed = Feed(4000, batch=4000, workers=1, seed=0, sampling="replacement")
    left_out = 1 - len(np.unique(feed.indices(0, 0))) / 4000
    assert abs(left_out - np.exp(-1)) < 0.02


# Bad input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("split-label", "unknown partition 'split-label' (did you mean 'split-labels'?); known: "),
        ("", "unknown partition ''"),
        ("dirichlet", "alpha must be a finite number above 0, got None"),
        ("dirichlet(0)", "alpha must be a finite number above 0, got '0'"),
        ("dirichlet(nan)", "alpha must be a finite number above 0, got 'nan'"),
        ("size-skew(-1)", "s must be a finite number from 0, got '-1'"),
        ("split(2)", "partition 'split' takes no argument, got '2'"),
        ("split-labels(random)", "takes in-order or shuffled, got 'random'"),
    ],
)
def test_a_partition_that_is_not_one_is_refused_in_one_line(text, message):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("split-labels", {"workers": 11}, "there are 11 workers and only 10 labels"),
        ("split", {"workers": 1001}, "1,000 training samples cannot be split among 1001 workers"),
        ("dirichlet(0.01)", {"workers": 10, "least": 90}, "dirichlet(0.01) left some worker with fewer than 90"),
        ("split-labels", {"workers": 2, "labels": None, "size": 10}, "partition 'split-labels' needs labels"),
    ],
)
def test_a_split_that_cannot_be_made_says_why(text, options, message):
    with pytest.raises(ConfigError) as caught:
        divide(text, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(("k", "size"), [(1, 10), (11, 10), (0, 10)])
def test_folds_must_fit(k, size):
    with pytest.raises(ConfigError, match=f"from 2 to the 10 training samples, got {k}"):
        holdout.folds(size, k, 0)
    with pytest.raises(ConfigError, match="leaves one side empty"):
        holdout.share(10, 0.01, 0)
