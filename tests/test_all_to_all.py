"""All-to-all exchange: set staleness, replicas that agree in the end, latency, the generator node (B13)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles.peers
from harness import cluster, dicts, simulate
from offbeat.core.errors import ConfigError
from offbeat.solvers.all_to_all import AllToAll
from offbeat.solvers.asgd import ASGD
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic
from peers import gradient_of, run_for, sgd

NOISY = Quadratic(3, noise=0.5)


def applications(sim):
    """Set staleness by (model that applies it, source, draw)."""
    return {(r["worker"], r["source"], r["draw"]): r["staleness"] for r in dicts(sim.rows) if r["applied"]}


# -- B13 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute", ["10ms", "gamma(10ms, 4ms)"])
@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_b13_without_latency_it_is_the_staleness_of_a_server_everywhere(workers, compute):
    machines = cluster(workers, compute=compute)
    peers = simulate(NOISY, AllToAll(sgd(0.01)), machines, updates=40 * workers)
    server = simulate(NOISY, ASGD(sgd(0.01)), machines, updates=40 * workers)
    mine = [r for r in peers.rows if r["outcome"] == "applied"]
    assert [(r["worker"], r["draw"], r["staleness"]) for r in mine] == [
        (r["worker"], r["draw"], r["staleness"]) for r in server.applied
    ]
    by_gradient = {}
    for (_, source, draw), tau in applications(peers.sim).items():
        by_gradient.setdefault((source, draw), []).append(tau)
    assert all(len(taus) == workers and len(set(taus)) == 1 for taus in by_gradient.values())
    steady = [r["staleness"] for r in mine[workers:]]
    assert sum(steady) / len(steady) == pytest.approx(workers - 1, abs=0.3)


def test_b13_latency_makes_gradients_staler():
    """W = 4, computing takes 1 on average, latency 0.3: (W - 1) (1 + 0.3) = 3.9 on average, instead of 3."""
    for latency, expected in ((0.0, 3.0), (0.3, 3.9)):
        machines = cluster(4, compute="gamma(1s, 300ms)", peers=f"{latency}s")
        sim = run_for(1500.0, Idle(8), AllToAll(sgd(0.01)), machines)
        taus = list(applications(sim).values())
        assert len(taus) > 20_000
        assert sum(taus) / len(taus) == pytest.approx(expected, abs=0.05)


schedules = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), min_size=2, max_size=4)


@settings(deadline=None, max_examples=60)
@given(schedules, st.lists(st.integers(0, 60), min_size=6, max_size=6))
def test_b13_set_staleness_is_the_symmetric_difference_of_sets(gaps, latencies):
    """Any schedule and any latency a pair, against sets written out; afterwards all models hold all gradients."""
    workers = len(gaps)
    # Times are made distinct: worker i's at i / 16, arrivals at odd multiples of 1/512 and so on.
    finishes = sorted((t + w / 16, w) for w, g in enumerate(gaps) for t in np.cumsum(g).astype(float))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    wait = {pair: value + 1 / 128 + n / 512 for n, (pair, value) in enumerate(zip(pairs, latencies, strict=True))}

    def latency(i, j):
        return wait[min(i, j), max(i, j)]

    peers = [f"{wait[i, j]}s@{i}>{j}" for i, j in pairs if j < workers]
    sim = run_for(1e6, NOISY, AllToAll(sgd(0.1)), cluster(workers, schedule=finishes, peers=peers))
    x, done, expected = oracles.peers.all_to_all(np.ones(3), finishes, latency, gradient_of(NOISY), workers, eta=0.1)
    assert applications(sim) == {(a.model, *a.gradient): a.staleness for a in expected}
    assert len({w.state.clock for w in sim.workers}) == 1
    assert all(d == done[0] for d in done)
    for mine, theirs in zip(sim.workers, x, strict=True):
        np.testing.assert_allclose(mine.state.x.numpy(), theirs, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(mine.state.x.numpy(), x[0], rtol=1e-12, atol=1e-13)


def test_b13_the_example_of_figure_1():
    """Model 2 computes green and applies it; then it applies blue, which model 1 computed knowing of nothing: 1."""
    blue, green = 0, 1  # models 1 and 2 are workers 0 and 1
    machines = cluster(3, schedule=[(1.0, green), (1.5, blue)], peers="1s")
    seen = applications(run_for(10.0, NOISY, AllToAll(sgd(0.1)), machines))
    assert seen[green, blue, 0] == 1, "S(blue, 1, 2) = |{} symmetric difference {green}|"
    assert seen[green, green, 0] == seen[blue, blue, 0] == 0
    assert seen[blue, green, 0] == 1
    assert [seen[2, green, 0], seen[2, blue, 0]] == [0, 1]


def test_a_gradient_counts_its_samples_once():
    out = simulate(NOISY, AllToAll(sgd(0.1)), cluster(4), updates=20)
    assert out.sim.updates == out.sim.samples == 20
    received = [r for r in out.rows if r["outcome"] == "received"]
    assert len(received) == 60
    assert {r["samples"] for r in received} == {0}


def test_one_model_is_sgd_bit_for_bit():
    x = np.ones(3)
    for k in range(30):
        x = x + -0.1 * gradient_of(NOISY)(x, 0, k)
    assert simulate(NOISY, AllToAll(sgd(0.1)), cluster(1), updates=30).x.tolist() == x.tolist()


def test_the_learning_rate_of_an_update_is_its_senders():
    """Updates carry -eta g: under a schedule replicas still agree, although they apply them at different moments."""
    solver = AllToAll(sgd(0.2))
    solver.schedule = lambda work: 1 / (1 + work / 10)
    finishes = [(t + i / 10, i) for t in range(1, 12) for i in range(3)]
    sim = run_for(100.0, NOISY, solver, cluster(3, schedule=finishes, peers=["700ms", "2900ms@0>2"]))
    for w in sim.workers:
        torch.testing.assert_close(w.state.x, sim.workers[0].state.x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "opt", [sgd(0.1, momentum=0.9), torch.optim.Adam, sgd(0.1, weight_decay=0.1)], ids=["momentum", "adam", "decay"]
)
def test_what_does_not_commute_is_refused_with_the_reason(opt):
    with pytest.raises(ConfigError, match="only if they commute"):
        AllToAll(opt)


def test_the_survivors_agree_after_a_loss():
    """What a model had sent before it was lost reaches all others."""
    finishes = [(t + i / 10, i) for t in range(1, 8) for i in range(4)]
    machines = cluster(4, schedule=finishes, peers=["1900ms", "50ms@0>1"], events=["lose 2 at 3.25s"])
    sim = run_for(100.0, NOISY, AllToAll(sgd(0.1)), machines)
    alive = [w.state for w in sim.workers if w.alive]
    assert len(alive) == 3
    assert {s.clock for s in alive} == {(7, 7, 3, 7)}
    for s in alive:
        torch.testing.assert_close(s.x, alive[0].x, rtol=1e-12, atol=1e-14)


# -- the generator node -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3, 12])
def test_the_generator_node_feeds_no_faster_than_its_rate(workers):
    """A closed queue: computing Z = 10 ms, a batch takes D = 2 ms: throughput min(W / (Z + D), 1 / D)."""
    sim = run_for(6.0, Idle(8), AllToAll(sgd(0.1)), cluster(workers, compute="10ms", feeder="2ms"))
    assert sim.updates == pytest.approx(6.0 * min(workers / 0.012, 1 / 0.002), abs=2 * workers)


def test_models_that_wait_for_batches_make_gradients_fresher():
    """64 models, and a generator that keeps 56 of them busy: mean staleness about 55, not 63 (tosi2022)."""
    sim = run_for(5.0, Idle(8), AllToAll(sgd(0.1)), cluster(64, compute="gamma(100ms, 20ms)", feeder="1785us"))
    late = [r[6] for r in sim.rows if r[0] > 2.0 and r[9] == "applied"]
    busy = 0.1 / 0.001785
    assert busy == pytest.approx(56, abs=0.1)
    assert sum(late) / len(late) == pytest.approx(busy - 1, abs=0.6)
