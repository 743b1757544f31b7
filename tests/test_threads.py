"""The engine of threads that train in place: one thread is the kernel in a loop; books and checkpoints are whole."""

import json

import numpy as np
import pytest
import torch

from harness import Stop
from topics import SEA

pytest.importorskip("numba")

from offbeat.core.errors import ConfigError
from offbeat.core.seeds import key64
from offbeat.engines.threads import STRETCH, Threads, stretches_from
from offbeat.tasks.quadratic import Quadratic
from offbeat.tasks.word2vec.quality import neighbours

pytestmark = pytest.mark.processes


@pytest.fixture
def task(word2vec_task):
    return word2vec_task


def rate(work):
    return 0.05 / (1 + work / 10_000)


def engine(task, workers=1, seed=7):
    return Threads(task, None, rate, workers=workers, seed=seed)


def run(task, samples, every=10**9, **options):
    """The engine, closed, and what was seen of it on the way."""
    made, seen = engine(task, **options), []
    stop = Stop(samples=samples, every=every, look=lambda e: seen.append((e.samples, e.point.x)))
    assert made.run(stop.watch(made)) == "watcher"
    made.close()
    return made, seen


def test_one_thread_is_the_kernel_in_a_loop(task):
    made, _ = run(task, 30_000)
    x = task.init(7).x.dense()
    work = draw = 0
    while work < 30_000:
        start = draw % -(-task.size // STRETCH) * STRETCH
        stop = min(start + STRETCH, task.size)
        work += stop - start
        task.sweep(x, start, stop, rate(work), key64(7, "sweep", 0, draw))
        draw += 1
    assert torch.equal(made.point.x, x)
    assert (made.samples, made.updates) == (work, draw)


def test_looking_on_changes_nothing(task):
    often, seen = run(task, 30_000, every=5000)
    never, _ = run(task, 30_000)
    assert torch.equal(often.point.x, never.point.x)
    assert [s // 5000 for s, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert not torch.equal(seen[0][1], seen[1][1]), "a point that was handed out is a copy"


def test_every_word_comes_once_a_pass(task):
    found = []
    for s in stretches_from(0, task.size):
        if s.work >= 2 * task.size:
            break
        assert s.work == len(found)
        found += range(s.start, s.stop)
    assert found == [*range(task.size)] * 2


def test_two_threads_account_for_every_stretch_and_learn(task):
    made, _ = run(task, 3 * task.size, workers=2)
    assert sorted(r[3] for r in made.rows) == list(range(made.updates))
    assert sum(r[11] for r in made.rows) == made.samples
    assert {r[1] for r in made.rows} <= {0, 1}
    assert all(r[4] is r[5] is r[6] is None for r in made.rows), "no versions are made up"
    near = [w for w, _ in neighbours("ship", task.words, made.point.x.view(2, -1, 8)[0].numpy(), 5)]
    assert set(near) <= set(SEA)


def test_a_checkpoint_goes_on_with_the_same_bits(task):
    whole, _ = run(task, 30_000)
    first, _ = run(task, 11_000)
    tensors = {}
    saved = json.loads(json.dumps(first.save(tensors)))
    second = engine(task)
    second.restore(saved, {k: t.clone() for k, t in tensors.items()})
    second.run(Stop(samples=30_000).watch(second))
    assert torch.equal(second.point.x, whole.point.x)


def test_a_loss_that_explodes_ends_the_run(task):

    class Alarmed(Stop):
        def suspicious(self, loss):
            return not np.isfinite(loss)

    made = engine(task)
    made._x[0] = float("nan")
    assert made.run(Alarmed(samples=task.size).watch(made)) == "watcher"
    assert made.samples < task.size


def test_tasks_that_cannot_train_in_place_are_refused():
    with pytest.raises(ConfigError, match=r"for tasks that train in place \(word2vec\), not for 'quadratic'"):
        Threads(Quadratic(), None, rate, workers=1, seed=0)


def test_the_command_line_reaches_it_and_refuses_what_it_is_not(topics_file, command):
    base = ["run", "word2vec", "--data", str(topics_file), "--engine", "threads", "--set", "task.dim=8"]
    base += ["--set", "task.negatives=3"]
    code, out, err = command(
        *base, "--solver", "hogwild", "--workers", "2", "--budget", "2epochs", "--json", "--out", "r"
    )
    assert code == 0, err
    assert json.loads(out)["mean_staleness"] is None
    assert command("embed", "neighbours", "r", "ship")[0] == 0
    assert command("embed", "neighbours", "r", "ship", "--count", "0")[0] == 2
    for options, says in (
        (["--solver", "asgd"], "the threads engine cannot run asgd: it does not train in place, without a lock"),
        (
            ["--solver", "hogwild", "--set", "solver.locked=true"],
            "cannot run hogwild: it does not train in place, without a lock",
        ),
        (["--solver", "plain", "--workers", "2"], "cannot run plain: it runs on one worker"),
        (["--solver", "hogwild", "--delay", "5ms"], "there are no delays"),
        (["--solver", "hogwild", "--set", "solver.clip=0.1"], "without clipping"),
    ):
        code, _, err = command(*base, *options, "--out", "x")
        assert code == 2, err
        assert says in err
