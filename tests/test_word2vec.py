"""The word2vec task: sparse and dense give the same bits, a checkpoint falls anywhere, and a run leaves embeddings."""

import json

import numpy as np
import pytest
import torch

from harness import Stop, build, cluster, simulate
from oracles import skipgram
from topics import SEA, SKY

pytest.importorskip("numba")

from offbeat import solvers
from offbeat.core.errors import ConfigError, DataError
from offbeat.core.feed import Feed
from offbeat.core.sparse import RowSparse, RowTable
from offbeat.core.task import Point
from offbeat.optim.steppers import optimizer_factory
from offbeat.tasks.word2vec.quality import JudgedPairs, analogies, neighbours
from offbeat.tasks.word2vec.skipgram import Word2Vec


@pytest.fixture
def task(word2vec_task):
    return word2vec_task


class Dense:
    """The same task with an ordinary vector as its parameters, and ordinary gradients."""

    def __init__(self, task):
        self._task = task

    def __getattr__(self, name):
        return getattr(self._task, name)

    def init(self, seed):
        return Point(self._task.init(seed).x.dense())

    def gradient(self, point, batch, key):
        g = self._task.gradient(point, batch, key)
        g.value = g.value.dense()
        return g


def solver(name, lr=0.05, **options):
    return solvers.build(name, optimizer_factory("sgd", lr=lr), options)


def test_a_gradient_is_that_of_its_batch_and_has_its_rows_only(task):
    x = task.init(3).x.dense()
    x = x + 0.3 * torch.randn(len(x), generator=torch.Generator().manual_seed(0))
    batch = np.arange(500, 540)
    g = task.gradient(Point(x), batch, 99)
    windows = task.windows_at(task.corpus.train, batch, 99)
    lists = [
        (int(c), windows.contexts[windows.starts[i] : windows.starts[i + 1]].tolist(), windows.negatives[i].tolist())
        for i, c in enumerate(windows.centres)
    ]
    V = len(task.words)
    u, v = x.double().numpy().reshape(2, V, 8)
    loss, pairs, du, dv = skipgram.loss_and_gradient(u, v, lists)
    assert isinstance(g.value, RowSparse)
    assert g.samples == 40
    assert g.loss == pytest.approx(loss / pairs, rel=1e-5)
    np.testing.assert_allclose(g.value.dense().numpy().reshape(2, V, 8), [du, dv], atol=1e-4)
    touched = {c for _, cs, _ in lists for c in cs} | {V + o for c, _, ns in lists for o in (c, *ns)}
    assert set(g.value.rows.tolist()) == touched


def test_a_first_loss_is_that_of_guessing(task):
    """Outputs start at zero: every sigma is 1/2."""
    loss = task.evaluate(task.init(0), lambda f, xs: [f(x) for x in xs])["loss"]
    assert 3 * np.log(2) < loss <= 4 * np.log(2) + 1e-6


@pytest.mark.parametrize("memory", ["0s", "2ms"])
@pytest.mark.parametrize("name", ["plain", "asgd", "hogwild", "sync"])
def test_sparse_and_dense_parameters_end_at_the_same_point(task, name, memory):
    workers = 1 if name == "plain" else 3
    there = cluster(workers, compute="lognormal(10ms, 5ms)", memory=memory)
    ends = []
    for made in (task, Dense(task)):
        # With one chunk a read is whole, whichever way the vector is kept.
        options = {"chunks": 1} if name == "hogwild" else {}
        ends.append(simulate(made, solver(name, **options), there, updates=60, batch=20))
    if name == "hogwild":
        assert [r["loss"] for r in ends[0].applied] == [r["loss"] for r in ends[1].applied]
        assert torch.equal(ends[0].x, ends[1].x)
    else:  # torch's SGD fuses the product with the sum
        torch.testing.assert_close(ends[0].x, ends[1].x, rtol=1e-4, atol=1e-5)
    assert isinstance(ends[0].sim.server.x, RowTable)
    assert not torch.equal(ends[0].x, task.init(0).x.dense())


def test_one_hogwild_thread_is_plain_sgd(task):
    ends = [simulate(task, solver(name), cluster(1), updates=40, batch=20).x for name in ("plain", "hogwild")]
    assert torch.equal(*ends)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_the_pool_does_not_change_a_bit(task, threads):
    """Threads read versions that the event loop has long written over."""
    there = cluster(6, compute="lognormal(10ms, 8ms)")
    found = simulate(task, solver("hogwild"), there, updates=150, batch=20, threads=threads)
    expected = simulate(Dense(task), solver("hogwild"), there, updates=150, batch=20)
    assert torch.equal(found.x, expected.x)


@pytest.mark.parametrize("name", ["asgd", "hogwild"])
def test_a_checkpoint_may_fall_anywhere(task, name):
    there = cluster(3, compute="lognormal(10ms, 5ms)", memory="1ms")
    whole = simulate(task, solver(name), there, updates=100, batch=20).x
    for ticks in (7, 50, 93):
        first = build(task, solver(name), there, batch=20)
        first.run(Stop(ticks=ticks).watch(first))
        tensors = {}
        saved = json.loads(json.dumps(first.save(tensors)))
        second = build(task, solver(name), there, batch=20)
        second.restore(saved, {k: t.clone() for k, t in tensors.items()})
        assert second.updates < 100
        second.run(Stop(updates=100).watch(second))
        assert torch.equal(second.point.x, whole)


def test_two_topics_come_apart(task):
    found = simulate(task, solver("hogwild", 0.05), cluster(2), updates=2000, batch=8)
    vectors = found.x.view(2, -1, 8)[0].numpy()
    near = [w for w, _ in neighbours("ship", task.words, vectors, 5)]
    assert set(near) <= set(SEA)
    near = [w for w, _ in neighbours("moon", task.words, vectors, 5)]
    assert set(near) <= set(SKY)
    assert task.evaluate(Point(found.x), None)["loss"] < 0.9 * task.evaluate(task.init(0), None)["loss"]


def test_a_sweep_in_place_learns_the_same_as_gradients_do(task):
    x = task.init(0).x.dense()
    for epoch in range(4):
        task.sweep(x, 0, task.size, 0.1, epoch * task.size)
    near = [w for w, _ in neighbours("ship", task.words, x.view(2, -1, 8)[0].numpy(), 5)]
    assert set(near) <= set(SEA)


def test_only_plain_sgd_takes_row_sparse_gradients(task):
    for options in ({"name": "adam", "lr": 0.1}, {"name": "sgd", "lr": 0.1, "momentum": 0.9}):
        made = solvers.build("asgd", optimizer_factory(**options), {})
        with pytest.raises(ConfigError, match="row-sparse gradients take plain SGD, got"):
            build(task, made, cluster(2), batch=8)


@pytest.mark.parametrize("name", ["compressed", "dc-asgd", "gap-aware"])
def test_rules_that_work_on_single_components_are_refused(task, name):
    with pytest.raises(ConfigError, match="works on single components of whole vectors"):
        build(task, solver(name), cluster(2), batch=8)


def test_lost_adds_are_for_dense_vectors(task):
    with pytest.raises(ConfigError, match=r"solver\.atomic must be true for row-sparse gradients"):
        simulate(task, solver("hogwild", atomic=False), cluster(2), updates=5, batch=8)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dim": 0}, "task.dim must be a whole number from 1, got 0"),
        ({"window": -1}, "task.window must be a whole number from 1"),
        ({"negatives": True}, "task.negatives must be a whole number from 1"),
        ({"sample": -1.0}, "task.sample must be a finite number from 0"),
        ({"manner": "wild"}, "unknown task.manner 'wild'"),
        ({"data": "nowhere.txt"}, "no text 'nowhere.txt': give a file, or one of text8, enwik8"),
        ({"data": "mnist"}, "mnist is no text"),
        ({"data": "text8"}, "run: offbeat data get text8"),
    ],
)
def test_options_that_are_no_good_are_refused_in_one_line(topics_file, data_cache, options, says):
    with pytest.raises((ConfigError, DataError)) as e:
        Word2Vec(**{"data": str(topics_file), **options})
    assert says in str(e.value)


def test_a_batch_never_comes_without_a_pair(task):
    feed = Feed(task.size, batch=1, workers=1, seed=0)
    for k in range(60):
        assert len(task.gradient(task.init(0), feed.indices(0, k), k).value.rows)


# -- quality ----------------------------------------------------------------------------------------------------


def test_correlation_is_spearmans_over_known_pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("# heading\nWord 1\tWord 2\tHuman\nA\tB\t9\nA\tC\t5\nB\tC\t1\nA\tunknown\t3\n")
    pairs = JudgedPairs.read(path, {"a": 0, "b": 1, "c": 2})
    assert pairs.total == 4
    assert len(pairs.judged) == 3
    good = np.array([[1, 0], [1, 0.1], [0.5, 0.6]], dtype=np.float32)  # cosines: ab > bc > ac
    angle = good / np.linalg.norm(good, axis=1, keepdims=True)
    cosines = [angle[0] @ angle[1], angle[0] @ angle[2], angle[1] @ angle[2]]
    ranks, judged = np.argsort(np.argsort(cosines)), np.argsort(np.argsort([9, 5, 1]))
    expected = 1 - 6 * ((ranks - judged) ** 2).sum() / (3 * 8)
    assert pairs.correlation(good) == pytest.approx(expected)


def test_analogies_leave_the_question_out_of_the_answer(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(": royal\nking man queen woman\nman king woman queen\nking man queen nobody\n: none\n")
    words = ("king", "man", "queen", "woman", "stone")
    vectors = np.array([[1, 1], [1, 0], [0.2, 1.4], [0.2, 0.4], [-1, -1]], dtype=np.float32)
    assert analogies(path, words, vectors) == {"royal": (2, 2)}


def test_a_word_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'kingg' is not among the 2 words .* \(did you mean 'king'\?\)"):
        neighbours("kingg", ("king", "moon"), np.eye(2, dtype=np.float32))


# -- the command line -------------------------------------------------------------------------------------------


def test_a_run_leaves_embeddings_that_can_be_asked_and_saved(topics_file, command):
    options = ["--set", "task.dim=8", "--set", "task.negatives=3", "--set", "task.sample=0.05"]
    options += ["--set", "optimizer.lr=0.05", "--batch", "8", "--budget", "1epochs"]
    solver = ["--data", str(topics_file), "--solver", "hogwild", "--workers", "2"]
    code, out, err = command("run", "word2vec", *solver, *options, "--out", "run", "--json")
    assert code == 0, err
    assert json.loads(out)["loss"] < 2.4
    code, asked, _ = command("embed", "neighbours", "run", "ship", "--count", "5", "--json")
    assert {r["word"] for r in json.loads(asked)} <= set(SEA)
    code, out, _ = command("embed", "evaluate", "run")
    assert code == 0
    assert "offbeat data get wordsim353" in out
    code, out, err = command("embed", "neighbours", "run", "shipp")
    assert (code, out) == (2, "")
    assert "did you mean 'ship'" in err
    for form in ("text", "binary"):
        code, _, err = command("embed", "save", "run", "--format", form, "--out", form)
        assert code == 0, err
        assert command("embed", "neighbours", form, "ship", "--count", "5", "--json")[1] == asked


def test_a_run_that_explodes_says_why(topics_file, command):
    base = ["run", "word2vec", "--data", str(topics_file), "--solver", "asgd", "--workers", "3", "--batch", "32"]
    code, _, err = command(*base, "--set", "task.dim=8", "--set", "optimizer.lr=50", "--out", "run")
    assert code == 3
    assert "likely cause: learning rate 50" in err


def test_bad_texts_end_with_one_line_and_code_2(tmp_path, command):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "latin").write_bytes("déjà vu".encode("latin-1"))
    for name, says in (("empty", "holds no words"), ("latin", "is not UTF-8: byte 0xe9 at 1")):
        code, _, err = command("run", "word2vec", "--data", name, "--out", "run")
        assert code == 2
        assert says in err
        assert err.count("\n") == 1
        assert not (tmp_path / "run").exists()


@pytest.mark.processes
@pytest.mark.parametrize("name", ["hogwild", pytest.param("all-to-all", marks=pytest.mark.slow)])
def test_real_processes_train_it_too(topics_file, command, name):
    options = ["--set", "task.dim=8", "--set", "task.negatives=3", "--set", "optimizer.lr=0.05", "--batch", "8"]
    base = ["run", "word2vec", "--data", str(topics_file), "--engine", "local", "--solver", name, "--workers", "2"]
    code, out, err = command(*base, *options, "--budget", "600updates", "--out", "run", "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert summary["updates"] >= 600
    assert summary["loss"] < 2.59, "guessing has 2.605"
    assert summary["mean_staleness"] is not None
