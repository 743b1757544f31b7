"""The simulator is parallel and exact: any pool gives the same bits, and nobody changes what was published."""

import gc
import hashlib
import random
import warnings
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import offbeat
from harness import USABLE, Stop, build, cluster, mlp_task, optimizer_options, points, simulate
from offbeat.core.codec import fields_of
from offbeat.core.feed import Feed
from offbeat.core.permutation import Permutation
from offbeat.core.seeds import BLOCK, Draws, generator, key64
from offbeat.solvers import SOLVERS
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.optimizers import optimizer_factory
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.solvers.sync import Sync
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic
from offbeat.tasks.randomness import Keyed

SGD = partial(torch.optim.SGD, lr=0.1)
ALONE = ("plain", "constant-delay")

# -- any pool, the same bits ------------------------------------------------------------------------------------------


class Gumbel(nn.Module):
    """Random numbers that cannot be keyed: they are drawn inside a function that takes no generator."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gumbel_softmax(x, tau=0.5) * x.shape[1]


class GumbelInTraining(Gumbel):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else torch.softmax(x, 1) * x.shape[1]


class Jitter(torch.utils.data.Dataset):
    """A data set that adds noise from numpy's and Python's global generators."""

    def __init__(self) -> None:
        self.x, self.y = points(200)

    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        noise = np.random.normal(size=12).astype(np.float32)  # the global one is the point
        return self.x[i] + torch.from_numpy(noise) * random.random(), self.y[i]


TASKS = {
    "plain": lambda: mlp_task(),
    "dropout": lambda: mlp_task(lambda: nn.Dropout(0.4)),
    "batch norm": lambda: mlp_task(lambda: nn.Dropout(0.2), norm=True),
    "alpha dropout": lambda: mlp_task(lambda: nn.AlphaDropout(0.3)),
    "gumbel": lambda: mlp_task(GumbelInTraining),
    "numpy data": lambda: mlp_task(train=Jitter()),
    "quadratic": lambda: Quadratic(5, noise=1.0),
}


def fingerprint(run: offbeat.Run) -> tuple[object, ...]:
    buffers = {n: b.tolist() for n, b in (run.point.buffers or {}).items()}
    return run.params.tolist(), buffers, run.trace.to_pylist(), run.metrics.to_pylist(), run.status


def train(task, solver, pool, **options):
    settings = {"budget": "480samples", "evaluate_every": "7updates", "batch": 8, "seed": 3, **options}
    machines = cluster(6, compute="lognormal(10ms,6ms)", delay="20ms@0")
    return offbeat.train(task, solver, machines, out=False, pool=pool, **settings)


@pytest.mark.parametrize("solver", [ASGD, Sync])
@pytest.mark.parametrize("name", TASKS)
def test_any_pool_gives_the_same_parameters_trace_and_metrics(name, solver):
    opt = partial(torch.optim.Adam, lr=0.01) if name == "dropout" else SGD
    expected = fingerprint(train(TASKS[name](), solver(opt), 0))
    assert len(set(expected[0])) > 3
    for pool in (2, 3, 4):
        assert fingerprint(train(TASKS[name](), solver(opt), pool)) == expected, f"{pool} threads"


def test_the_state_of_global_generators_does_not_matter_and_is_left_alone():
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        runs += [fingerprint(train(TASKS[n](), ASGD(SGD), 2, budget="15updates")) for n in ("dropout", "numpy data")]
        assert torch.equal(torch.random.get_rng_state(), before[0])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert runs[0] == runs[2]
    assert runs[1] == runs[3]


def test_a_model_that_draws_in_evaluation_too_is_exact():
    test = points(1500, 2)

    def run(pool, every="2updates"):
        torch.manual_seed(pool)
        task = offbeat.task(
            lambda: nn.Sequential(nn.Linear(12, 16), Gumbel(), nn.Linear(16, 4)), F.cross_entropy, points(200), test
        )
        return train(task, ASGD(SGD), pool, budget="80updates", evaluate_every=every)

    expected = fingerprint(run(0))
    for pool in (2, 3, 4):
        got = fingerprint(run(pool))
        assert got[0] == expected[0], f"parameters with {pool} threads"
        assert got[3] == expected[3], f"metrics with {pool} threads"


@pytest.mark.parametrize("name", ["dropout", "batch norm", "numpy data"])
def test_watching_does_not_change_the_course(name):
    seldom = train(TASKS[name](), ASGD(SGD), 2, evaluate_every="1000updates")
    always = train(TASKS[name](), ASGD(SGD), 2, evaluate_every="1updates", gap=False, keep_best=False)
    assert torch.equal(seldom.params, always.params)
    assert seldom.trace.drop_columns("gap").equals(always.trace.drop_columns("gap"))


def test_draws_depend_on_source_and_draw_and_not_on_timing():
    """Other machines, same solver: worker i's k-th batch holds the same samples and the same dropout."""
    rows = []
    for compute in ("10ms", "exponential(30ms)"):
        frozen = ASGD(partial(torch.optim.SGD, lr=1e-30))
        task = mlp_task(lambda: nn.Dropout(0.4))
        out = simulate(task, frozen, cluster(4, compute=compute), updates=80, batch=8)
        rows.append({(r["source"], r["draw"]): r["loss"] for r in out.applied})
    both = rows[0].keys() & rows[1].keys()
    assert len(both) > 40
    assert all(rows[0][k] == rows[1][k] for k in both)


def test_a_seed_changes_data_dropout_times_and_weights():
    runs = [train(TASKS["dropout"](), ASGD(SGD), 0, seed=s, budget="20updates") for s in (0, 1)]
    assert runs[0].trace["loss"] != runs[1].trace["loss"]
    assert runs[0].trace["time"] != runs[1].trace["time"]
    assert not torch.equal(runs[0].params, runs[1].params)


def test_the_pool_really_computes_ahead():
    """More than one gradient at a time, else the tests above would show nothing."""
    import threading

    task, seen = mlp_task(), set()
    inner = task.gradient

    def gradient(point, batch, key):
        seen.add(threading.current_thread().name)
        return inner(point, batch, key)

    task.gradient = gradient
    train(task, ASGD(SGD), 2)
    assert len(seen) == 2


# -- randomness inside a model ----------------------------------------------------------------------------------------


MODULES = [
    (nn.Dropout(0.3), (5, 7)),
    (nn.Dropout(0.3), (0, 7)),
    (nn.Dropout(0.9, inplace=True), (5, 7)),
    (nn.Dropout(0.0), (5, 7)),
    (nn.Dropout(1.0), (5, 7)),
    (nn.Dropout2d(0.3), (4, 5, 3, 3)),
    (nn.Dropout2d(0.3, inplace=True), (4, 5, 3, 3)),
    (nn.Dropout2d(0.3), (4, 5, 3)),
    (nn.Dropout3d(0.3), (4, 5, 2, 3, 3)),
    (nn.Dropout2d(1.0), (4, 5, 3, 3)),
    # torch takes 4-d input of dropout3d as one sample (C, D, H, W).
    (nn.Dropout3d(0.3), (4, 5, 3, 3)),
]


@pytest.mark.parametrize(("module", "shape"), MODULES, ids=[f"{m}-{len(s)}d" for m, s in MODULES])
def test_keyed_dropout_is_torch_seeded_with_the_key(module, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    with Keyed(123):
        keyed = [module.train()(x.clone()) for _ in range(2)]
        asleep = module.eval()(x.clone())
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator was used"
    torch.manual_seed(123)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch remarks on 3-d input
        native = [module.train()(x.clone()) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(keyed, native, strict=True))
    assert torch.equal(asleep, x)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(5),
        lambda: torch.randn(5),
        lambda: torch.randint(0, 100, (5,)),
        lambda: torch.randperm(20),
        lambda: torch.normal(torch.zeros(5), torch.ones(5)),
        lambda: torch.bernoulli(torch.full((9,), 0.5)),
        lambda: torch.multinomial(torch.ones(9), 4),
        lambda: torch.empty(5).uniform_(),
        lambda: torch.empty(5).normal_(),
        lambda: torch.empty(5).exponential_(),
        lambda: torch.empty(5).log_normal_(),
    ],
)
def test_keyed_functions_are_torch_seeded_with_the_key(draw):
    with Keyed(7):
        keyed = draw()
    torch.manual_seed(7)
    assert torch.equal(keyed, draw())


def test_a_gradient_is_a_function_of_its_key():
    for name in ("dropout", "alpha dropout", "gumbel", "numpy data"):
        task = TASKS[name]()
        point, batch = task.init(0), np.arange(16)
        a, b, c = (task.gradient(point, batch, key) for key in (1, 1, 2))
        assert torch.equal(a.value, b.value), name
        assert not torch.equal(a.value, c.value), name


# -- what was published is never changed ----------------------------------------------------------------------------


class Ledger:
    """Remembers every tensor that was handed over, with the hash it had."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Tensor, str]] = []

    @staticmethod
    def hash(t: Tensor) -> str:
        return hashlib.sha256(t.detach().numpy().tobytes()).hexdigest()

    def add(self, label: str, thing: object) -> None:
        if isinstance(thing, Tensor):
            self.entries.append((label, thing, self.hash(thing)))
        elif isinstance(thing, dict):
            for name, value in thing.items():
                self.add(f"{label} {name}", value)
        elif hasattr(thing, "_asdict"):
            self.add(label, thing._asdict())
        elif isinstance(thing, list | tuple):
            for value in thing:
                self.add(label, value)
        elif type(thing).__module__.startswith("offbeat.core"):  # an effect, a gradient, a view
            for name in fields_of(type(thing)):
                self.add(f"{label} {type(thing).__name__}.{name}", getattr(thing, name))

    def check(self) -> None:
        for label, tensor, before in self.entries:
            assert self.hash(tensor) == before, f"{label} was changed after it was published"


def watched(task, solver, ledger):
    """The same task and solver, with everything that passes between them in the ledger."""
    gradient, evaluate, on_call, round_ = task.gradient, task.evaluate, solver.on_call, solver.round

    def watched_gradient(point, batch, key):
        ledger.add("task", point)
        g = gradient(point, batch, key)
        ledger.add("task", g)
        return g

    def watched_call(s, worker, payload):
        ledger.add("pushed", payload)
        for effect in on_call(s, worker, payload):
            ledger.add("server", effect)
            yield effect

    def watched_round(w):
        rule, answer = round_(w), None
        while True:
            try:
                effect = rule.send(answer)
            except StopIteration:
                return
            ledger.add("worker", effect)
            answer = yield effect
            ledger.add("answer", answer)

    def watched_evaluation(point, mapper):
        ledger.add("evaluated", point)
        return evaluate(point, mapper)

    task.gradient, task.evaluate = watched_gradient, watched_evaluation
    solver.on_call, solver.round = watched_call, watched_round
    return task, solver


@pytest.mark.parametrize("name", SOLVERS)
def test_nothing_that_was_published_is_changed_by_any_solver(name):
    machines = 1 if name in ALONE else 4
    for make in (TASKS["quadratic"], TASKS["batch norm"]):
        for options in ({"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}, {"lr": 0.05}):
            try:
                made = offbeat.solver(name, **options)
            except offbeat.ConfigError:
                assert "momentum" in options, "plain SGD must do"
                continue
            ledger = Ledger()
            task, solver = watched(make(), made, ledger)
            offbeat.train(task, solver, machines, budget="25updates", batch=8, out=False, evaluate_every="3updates")
            assert len(ledger.entries) > 100
            ledger.check()


@pytest.mark.parametrize("name", USABLE)
def test_nothing_that_was_published_is_changed_by_any_optimizer(name):
    everything = {"weight_decay": 0.1, "maximize": True, "momentum": 0.9, "amsgrad": True, "foreach": True}
    for wanted in ({}, {"weight_decay": 0.1}, everything):
        ledger = Ledger()
        made = optimizer_factory(name, lr=0.01, **(optimizer_options(name, wanted) or {}))
        task, solver = watched(mlp_task(), ParameterServer(made), ledger)
        offbeat.train(task, solver, 3, budget="8updates", batch=8, out=False)
        ledger.check()


def test_views_of_different_versions_share_no_memory():
    ledger = Ledger()
    task, solver = watched(Quadratic(4), ASGD(SGD), ledger)
    simulate(task, solver, cluster(4), updates=20)
    sent = [t for label, t, _ in ledger.entries if label == "server Reply.value View.x"]
    assert len({t.untyped_storage().data_ptr() for t in sent}) == len(sent) == 20


def test_a_model_that_writes_to_its_parameters_does_not_write_to_the_point():
    """nn.Embedding(max_norm=...) renormalises its weight in place during the forward pass."""

    def make():
        return nn.Sequential(nn.Embedding(20, 6, max_norm=0.5), nn.Flatten(), nn.Linear(18, 4))

    g = torch.Generator().manual_seed(0)
    data = torch.randint(0, 20, (64, 3), generator=g), torch.randint(0, 4, (64,), generator=g)
    task = offbeat.task(make, F.cross_entropy, data, data)
    point = task.init(0)
    before = point.x.clone()
    task.gradient(point, np.arange(16), 0)
    task.evaluate(point, lambda f, items: [f(i) for i in items])
    assert torch.equal(point.x, before)


# -- batches ----------------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 150), batch=st.integers(1, 40), seed=st.integers(0, 99), source=st.integers(0, 3))
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


# -- staleness, gap and the trace -------------------------------------------------------------------------------------


def test_staleness_counts_the_updates_between_reading_and_applying_and_not_itself():
    # Worker 1 reads version 0, then worker 0 makes three updates, then worker 1's gradient comes.
    schedule = [(1.0, 0), (2.0, 0), (3.0, 0), (4.0, 1), (5.0, 1)]
    out = simulate(Quadratic(1), ASGD(SGD), cluster(2, schedule=schedule), updates=5, gap=True)
    assert [(r["version_read"], r["version_applied"], r["staleness"]) for r in out.applied] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
        (0, 3, 3),
        (4, 4, 0),
    ]
    # lr 0.1 on x^2 / 2 from 1: three fresh steps lead to 0.9^3.
    assert [r["gap"] for r in out.applied] == pytest.approx([0, 0, 0, 1 - 0.9**3, 0], abs=1e-12)


def test_a_row_says_when_its_gradient_was_read_computed_and_applied():
    machines = cluster(1, compute="1s", delay="0.5s", latency="0.25s", service="2s")
    out = simulate(Quadratic(1), ASGD(SGD), machines, updates=2)
    times = [(r["started"], r["computed"], r["time"]) for r in out.applied]
    assert times == [(0.0, 1.5, 3.75), (4.0, 5.5, 7.75)]
    spent = out.sim.breakdown()[0]
    assert (spent["present"], spent["computing"], spent["delayed"]) == (7.75, 2.0, 1.0)
    assert spent["communicating"] + spent["waiting"] == 4.75
    assert spent["communicating"] == pytest.approx(0.75, abs=0.25)  # the last reply is charged when it is sent


# -- size -----------------------------------------------------------------------------------------------------------


def vectors(dim: int) -> int:
    """Distinct pieces of memory of the size of a parameter vector that are alive."""
    gc.collect()
    alive = [o for o in gc.get_objects() if type(o) in (Tensor, nn.Parameter)]
    return len({t.untyped_storage().data_ptr() for t in alive if t.numel() == dim and t.untyped_storage().nbytes()})


@pytest.mark.parametrize("pool", [0, 2])
@pytest.mark.parametrize("solver", [ASGD, Sync])
def test_a_thousand_workers_keep_one_vector_each(solver, pool):
    """ASGD: what each has read. Sync: what each has delivered. And a constant number beside them."""
    W, dim = 1000, 1237
    sim = build(Quadratic(dim), solver(SGD), cluster(W, compute="normal(1s,0.2s)"), threads=pool)
    counts = []
    try:
        before = vectors(dim)
        for events in (W // 2, W - 100, 500):
            sim.run(Stop(ticks=events))
            counts.append(vectors(dim) - before)
    finally:
        sim.close()
    assert max(counts) <= W + 20
    assert max(counts) > W // 2, "the count sees them"


def test_timing_only_with_two_thousand_workers():
    W = 2000
    out = simulate(Idle(nbytes=10**6), ASGD(SGD), cluster(W, compute="normal(1s,0.2s)"), updates=3 * W)
    ages = [r["staleness"] for r in out.rows if r["outcome"] == "in flight"]
    assert sum(out.taus) == 3 * W * (W - 1) - sum(ages)
    assert out.sim.bytes == 3 * W * 2 * 10**6
    # All start together, so that a worker's next gradient is half a second away in the mean.
    assert out.sim.now == pytest.approx(3.5, rel=0.05)


def test_timing_only_has_the_times_of_real_training():
    """The same event loop: a simulation without gradients has the same clock, order and staleness."""
    link = {"latency": "1ms", "service": "exponential(2ms)"}
    events = ["lose 1 at 0.3s", "join 4 at 0.2s"]
    machines = cluster(5, compute="lognormal(10ms,5ms)", delay="30ms@2", events=events, **link)
    kept = ("time", "worker", "source", "draw", "staleness", "version_read", "outcome", "started", "computed")
    rows = []
    for task in (Idle(), Quadratic(3)):
        for solver in (ASGD(SGD), Sync(SGD)):
            out = simulate(task, solver, machines, updates=60)
            rows.append([[r[k] for k in kept] for r in out.rows])
    assert rows[0] == rows[2]
    assert rows[1] == rows[3]
    assert rows[0] != rows[1]


# -- losses and the barrier -----------------------------------------------------------------------------------------


def test_sync_never_applies_a_stale_gradient_of_a_lost_worker():
    """It is under way when its worker is lost, and would arrive after the barrier has re-formed."""
    machines = cluster(3, compute=["1s", "1.5s@1", "1.2s@2"], latency="1s", events=["lose 1 at 2.4s"])
    out = simulate(Quadratic(2), Sync(SGD), machines, updates=4)
    assert set(out.taus) == {0}


def test_sync_never_applies_a_stale_gradient_of_a_worker_that_came_back():
    """It comes back while its own earlier gradient still waits at the barrier."""
    machines = cluster(3, compute=["1s", "1.5s@1", "9s@2"], events=["lose 0 at 2s", "join 0 at 8.5s"])
    out = simulate(Quadratic(2), Sync(SGD), machines, updates=4)
    assert set(out.taus) == {0}


def test_sync_goes_on_without_the_lost_and_with_the_joined():
    machines = cluster(4, compute="1s", events=["lose 1 at 2.5s", "join 3 at 4.5s"])
    out = simulate(Quadratic(2), Sync(SGD), machines, updates=8)
    sizes = Counter(r["version_applied"] for r in out.applied)
    # Three until the loss at 2.5 s; two; and three again from the step that waits for the joined worker.
    assert [sizes[v] for v in range(8)] == [3, 3, 2, 2, 3, 3, 3, 3]
    assert [r["outcome"] for r in out.rows].count("lost") == 1


def test_events_of_one_worker_at_one_instant_keep_the_order_in_which_they_were_set():
    """Losses are known from the start: a worker lost at the instant its gradient is due has not delivered it."""
    out = simulate(Quadratic(1), ASGD(SGD), cluster(2, compute="10ms", events=["lose 0 at 10ms"]), updates=3)
    assert [(r["worker"], r["outcome"]) for r in out.rows[:2]] == [(0, "lost"), (1, "applied")]


def test_rows_are_in_the_order_of_time_and_ties_in_the_order_of_workers():
    rows = simulate(Quadratic(1), ASGD(SGD), cluster(5), updates=25).applied
    assert [(r["time"], r["worker"]) for r in rows] == sorted((r["time"], r["worker"]) for r in rows)
