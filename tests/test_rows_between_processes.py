"""Row-sparse values on real processes: only rows travel and are written, and the bits are those of the simulator."""

from math import inf
from types import MappingProxyType

import pytest
import torch

from offbeat import solvers
from offbeat.core.codec import Codec
from offbeat.core.feed import Feed
from offbeat.core.sparse import RowSparse, RowTable
from offbeat.engines.local import Fault, Options
from offbeat.lab.config import make
from offbeat.lab.engines import ForTests
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.replaying import replay
from offbeat.optim.steppers import optimizer_factory
from real import run, simulated
from touching import ROWS_A_BATCH, WIDTH, ManyRows, read


def solver(name, **options):
    return solvers.build(name, optimizer_factory("sgd", lr=0.1), options)


def setting(workers):
    return {"workers": workers, "feed": Feed(None, batch=1, workers=workers, seed=7), "seed": 7}


@pytest.mark.parametrize("name", ["asgd", "sync", "downpour", "hogwild", "all-to-all", "allreduce"])
def test_what_a_batch_touches_does_not_depend_on_the_number_of_rows(launcher, tmp_path, name):
    """Whole vectors are copied when processes begin and when somebody looks at the run; never for a batch."""
    updates, workers, a_batch = 150, 2, {}
    for rows in (5_000, 50_000):
        log = tmp_path / str(rows)
        engine = run(launcher, solver(name), task=ManyRows(rows, log), updates=updates, **setting(workers))
        batches, touched = int(engine.arena.samples.sum()), read(log)
        whole = [n for n in touched if n >= rows]
        assert batches >= updates
        assert 1 <= len(whole) <= 50, "not one for each batch"
        a_batch[rows] = (sum(touched) - sum(whole)) / batches
        assert a_batch[rows] < 100 * workers * ROWS_A_BATCH * WIDTH
    assert a_batch[50_000] < 3 * a_batch[5_000], "of ten times as many rows; staleness makes some difference"


@pytest.mark.parametrize("name", ["sync", "allreduce", "hierarchical", "local-sgd"])
def test_where_order_does_not_matter_the_bits_are_the_simulator_s(launcher, name):
    task = ManyRows(50)
    engine = run(launcher, solver(name), task=task, updates=inf, options=Options(quota=12), **setting(3))
    sim = simulated(solver(name), task=task, updates=inf, samples_per_worker=12, **setting(3))
    assert engine.updates == sim.updates
    assert (engine.bytes < sim.bytes) == (name == "sync"), "whose simulated server sends whole vectors back"
    assert torch.equal(engine.x, sim.point.x)


def test_rows_of_gradients_that_were_computed_while_a_message_was_under_way(launcher):
    """With one worker there is one order. A gradient is of the table before the last answer, which both ends have."""
    task = ManyRows(50)
    engine = run(
        launcher, solver("asgd", overlap=True), task=task, updates=inf, options=Options(quota=12), **setting(1)
    )
    sim = simulated(solver("asgd", overlap=True), task=task, updates=inf, samples_per_worker=12, **setting(1))
    assert engine.updates == sim.updates == 12
    assert torch.equal(engine.x, sim.point.x)
    assert engine.bytes < sim.bytes, "only rows travel"


@pytest.fixture
def words(launcher, topics_file, data_cache, tmp_path):
    """Word2vec on three processes."""

    def train(name, faults=(), checkpoint_seconds=30.0, budget=MappingProxyType({"updates": 150})):
        text = {"name": "word2vec", "data": str(topics_file), "dim": 8, "negatives": 3}
        there = {"cluster": {"workers": 3}, "budget": dict(budget), "engine": "local", "data": {"batch": 8}}
        plan = build(make({"task": text, "solver": {"name": name}, "optimizer": {"lr": 0.05}, **there}))
        aids = ForTests(launcher, faults)
        return execute(plan, tmp_path / "run", checkpoint_seconds=checkpoint_seconds, for_tests=aids)

    return train


@pytest.mark.parametrize("name", ["asgd", "downpour", "softsync"])
def test_what_a_server_puts_in_order_is_replayed_bit_for_bit(words, name):
    """Each worker follows the server's table by the rows that changed since its last pull."""
    done = words(name)
    assert done.status == "done"
    assert replay(done.path)["equal"]


def test_who_begins_anew_is_sent_the_whole_table_first(words):
    faults = (Fault("kill", 7, worker=1), Fault("kill", 3, worker=1, life=2), Fault("kill", 12, worker=0))
    done = words("asgd", faults, budget={"samples": 1200, "per": "worker"})  # who begins late is waited for
    assert len(done.summary["incidents"]) == 3
    assert replay(done.path)["equal"]


def test_a_server_that_is_lost_begins_again_with_its_table(words):
    done = words("asgd", (Fault("kill", 90, worker=None),), checkpoint_seconds=0.01)
    assert done.status == "done"
    assert done.summary["updates"] >= 150
    assert "the server was lost" in done.summary["incidents"][0]


def test_a_history_is_followed_by_the_rows_that_changed():
    """Two ends of a line, each with a table of its own; the reader may have gone on from what it was sent."""
    codec, rows, shape = Codec(), torch.tensor([1, 3]), (6, 2)
    there = RowTable(torch.zeros(shape)) + RowSparse(rows, torch.ones(2, 2), shape)
    here = RowTable(there.array.clone())
    stray = here + RowSparse(torch.tensor([0, 3]), torch.full((2, 2), 7.0), shape)
    newest = there + RowSparse(torch.tensor([3, 4]), torch.full((2, 2), 2.0), shape)
    tensors = {}
    tree = codec.encode([newest, there, newest], tensors, {"base": there})
    assert sum(t.numel() for t in tensors.values()) == 2 + 2 * 2, "two rows and where they are"
    got, base, again = codec.decode(tree, tensors, {"base": here})
    assert again is got
    assert base is here
    assert got.array is here.array
    assert got.dense().view(shape)[:, 0].tolist() == [0, 1, 0, 3, 2, 0]
    assert stray.dense().view(shape)[:, 0].tolist() == [7, 1, 0, 8, 0, 0]
    assert here.dense().view(shape)[:, 0].tolist() == [0, 1, 0, 1, 0, 0]
