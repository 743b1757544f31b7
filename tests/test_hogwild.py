"""Hogwild!: shared memory, torn reads, lost adds, the lock - against the operations done one by one."""

import itertools

import numpy as np
import pytest
import torch

import oracles.peers
from harness import cluster, simulate
from offbeat.core.effects import Gradient
from offbeat.core.errors import ConfigError
from offbeat.core.layout import Layout
from offbeat.core.seeds import key64
from offbeat.core.task import Point
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.hogwild import Hogwild
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic
from peers import gradient_of, run_for, sgd

NOISY = Quadratic(7, noise=0.5)


def test_one_thread_is_sgd_bit_for_bit():
    """x <- x - eta g, the product rounded; with and without the lock, in any number of chunks."""
    x = np.ones(7)
    for k in range(40):
        x = x - 0.1 * gradient_of(NOISY)(x, 0, k)
    for options in ({}, {"locked": True}, {"chunks": 3, "atomic": False}, {"chunks": 1}):
        for memory in ("0s", "3ms"):
            out = simulate(NOISY, Hogwild(sgd(0.1), **options), cluster(1, memory=memory), updates=40)
            assert out.x.tolist() == x.tolist()
            assert set(out.taus) == {0}
            assert out.sim.memory.lost_share == 0


@pytest.mark.parametrize("workers", [2, 5])
def test_without_memory_time_it_is_asgd(workers):
    machines = cluster(workers, compute="gamma(10ms, 4ms)")
    wild = simulate(NOISY, Hogwild(sgd(0.1)), machines, updates=200)
    server = simulate(NOISY, ASGD(sgd(0.1)), machines, updates=200)
    assert wild.taus == server.taus
    torch.testing.assert_close(wild.x, server.x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("chunks", [1, 3, 7, 10])
def test_every_single_operation_happens_in_its_place(chunks, atomic):
    """Three threads of different speed; the reference does all reads and writes of all coordinates in order of time."""
    times = [0.0101, 0.0137, 0.0173]
    seconds, memory = 0.4, 0.00911
    rounds = [int(seconds / (t + 2 * memory)) for t in times]
    machines = cluster(3, compute=[f"{t}s@{i}" for i, t in enumerate(times)], memory=f"{memory}s")
    # Each thread stops after its own number of rounds: the loss of a worker is an event like any other.
    ends = [f"lose {i} at {n * (t + 2 * memory) + 1e-5}s" for i, (n, t) in enumerate(zip(rounds, times, strict=True))]
    machines = cluster(3, compute=[f"{t}s@{i}" for i, t in enumerate(times)], memory=f"{memory}s", events=ends)
    sim = run_for(1.0, NOISY, Hogwild(sgd(0.1), chunks=chunks, atomic=atomic), machines)
    x, adds, lost = oracles.peers.hogwild(
        np.ones(7),
        [[t] * n for t, n in zip(times, rounds, strict=True)],
        gradient_of(NOISY),
        eta=0.1,
        memory=memory,
        chunks=chunks,
        atomic=atomic,
    )
    assert sim.updates == sum(rounds)
    assert sim.point.x.tolist() == x.tolist()
    if atomic:
        assert lost == 0 == sim.memory.lost_share
    elif 7 % chunks == 0:  # chunks of equal size: coordinates are lost in the same proportion as chunks
        assert lost > 0
        assert sim.memory.lost_share == pytest.approx(lost / adds)


class Counting:
    """Every gradient is -1 everywhere: with eta = 1, x counts the increments that are in it."""

    name, size, nbytes = "counting", None, 48
    layout = Layout.of([("x", (6,))])

    def init(self, seed):
        return Point(torch.zeros(6, dtype=torch.float64))

    def gradient(self, point, batch, key):
        return Gradient(-torch.ones(6, dtype=torch.float64), 0.0, 1)


@pytest.mark.parametrize("locked", [False, True])
def test_atomic_adds_sum_up_and_others_are_lost_under_contention(locked):
    machines = cluster(5, compute="gamma(10ms, 3ms)", memory="8ms")
    kept = run_for(1.0, Counting(), Hogwild(sgd(1.0), chunks=3, locked=locked), machines)
    total = float(kept.point.x.sum()) / 2  # two coordinates a chunk
    assert total == kept.memory.writes
    torn = run_for(1.0, Counting(), Hogwild(sgd(1.0), chunks=3, atomic=False, locked=locked), machines)
    total = float(torn.point.x.sum()) / 2
    assert total == torn.memory.writes * (1 - torn.memory.lost_share)
    assert torn.memory.lost_share == 0 if locked else torn.memory.lost_share > 0.1


class Own:
    """Worker i's gradients touch coordinates 2 i and 2 i + 1 only, and depend on nothing else."""

    name, size, nbytes = "own", None, 48
    layout = Layout.of([("x", (6,))])

    def __init__(self):
        self._who = {key64(0, "model", i, k): i for i in range(3) for k in range(200)}

    def init(self, seed):
        return Point(torch.ones(6, dtype=torch.float64))

    def gradient(self, point, batch, key):
        i = self._who[key]
        g = torch.zeros(6, dtype=torch.float64)
        g[2 * i : 2 * i + 2] = point.x[2 * i : 2 * i + 2] * torch.tensor([0.3, 0.7], dtype=torch.float64)
        return Gradient(g, 0.0, 1)


def test_disjoint_supports_are_a_serial_run_in_any_order_exactly():
    """With atomic adds, of course: whoever overwrites a chunk of others' coordinates undoes their adds."""
    ends = ["lose 0 at 481ms", "lose 1 at 491ms", "lose 2 at 501ms"]  # all are computing then
    machines = cluster(3, compute=["13ms@0", "17ms@1", "23ms@2"], memory="7ms", events=ends)
    sim = run_for(1.0, Own(), Hogwild(sgd(0.1), chunks=2), machines)
    counts = [sum(1 for r in sim.rows if r[1] == i and r[9] == "applied") for i in range(3)]
    assert [r[9] for r in sim.rows].count("lost") == 3
    assert min(counts) > 10
    for order in itertools.permutations(range(3)):
        x = np.ones(6)
        for i in order:
            for _ in range(counts[i]):
                for c, h in ((2 * i, 0.3), (2 * i + 1, 0.7)):
                    x[c] = x[c] + -0.1 * (x[c] * h)
        assert sim.point.x.tolist() == x.tolist()


def test_staleness_counts_the_adds_finished_in_between():
    """It obeys the same conservation law as that of a server: the mean is W - 1."""
    sim = run_for(20.0, Idle(8), Hogwild(sgd(0.1)), cluster(6, compute="gamma(10ms, 5ms)", memory="3ms"))
    taus = [r[6] for r in sim.rows]
    assert len(taus) > 5000
    assert sum(taus) / len(taus) == pytest.approx(5, abs=0.02)


@pytest.mark.parametrize("workers", [1, 2, 4, 9])
def test_threads_queue_for_the_lock_and_overlap_without_it(workers):
    """Compute Z = 10 ms, two passes of M = 3 ms: throughput W / (Z + 2 M), or with the lock at most 1 / (2 M)."""
    machines = cluster(workers, compute="10ms", memory="3ms")
    free = run_for(6.0, Idle(8), Hogwild(sgd(0.1)), machines)
    locked = run_for(6.0, Idle(8), Hogwild(sgd(0.1), locked=True), machines)
    assert free.updates == pytest.approx(6.0 * workers / 0.016, abs=workers)
    assert locked.updates == pytest.approx(6.0 * min(workers / 0.016, 1 / 0.006), abs=3 * workers)


def test_the_lock_goes_on_when_its_holder_is_lost():
    """Worker 0 takes it at time 0 and is lost in the middle of its read; the next in line reads in its place."""
    machines = cluster(3, compute="10ms", memory="8ms", events=["lose 0 at 3ms", "lose 2 at 5ms"])
    sim = run_for(0.5, NOISY, Hogwild(sgd(0.1), locked=True), machines)
    assert sim.workers[1].samples == pytest.approx((0.5 - 0.003) / 0.026, abs=1)


def test_many_chunks_and_long_queues_are_no_deep_recursion():
    run_for(0.05, NOISY, Hogwild(sgd(0.1), chunks=20_000), cluster(2))
    sim = run_for(0.06, Idle(8), Hogwild(sgd(0.1), locked=True, chunks=2), cluster(1500, memory="1us"))
    assert sim.updates > 5000


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1}])
def test_an_optimizer_with_a_memory_is_refused(options):
    with pytest.raises(ConfigError, match="plain SGD"):
        Hogwild(sgd(0.1, **options))


def test_the_summary_says_what_was_lost():
    import offbeat

    run = offbeat.train(
        Quadratic(6, noise=0.1),
        Hogwild(sgd(0.05), atomic=False),
        offbeat.Cluster.parse(workers=4, compute="gamma(10ms, 3ms)", memory="8ms"),
        budget="200updates",
        out=False,
    )
    assert 0 < run.summary["lost_share"] < 1
    quiet = offbeat.train(Quadratic(6), ASGD(sgd(0.05)), 4, budget="20updates", out=False)
    assert quiet.summary["lost_share"] is None
