"""Gossip: AD-PSGD and SGP against plain loops, and what averaging conserves (B16, B17)."""

import numpy as np
import pytest
import torch

import oracles.peers
from harness import cluster, simulate
from offbeat.core.errors import ConfigError
from offbeat.core.solver import World
from offbeat.engines.sim.event_heap import MESSAGE
from offbeat.solvers.ad_psgd import ADPSGD
from offbeat.solvers.sgp import SGP
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic
from peers import Flat, gradient_of, run_for, sgd, spread, starts

NOISY = Quadratic(3, noise=0.5)


class Noting(ADPSGD):
    """Writes down who averaged with whom."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.pairs = []

    def round(self, w):
        rule, answer = super().round(w), None
        while True:
            try:
                effect = rule.send(answer)
            except StopIteration:
                return
            if hasattr(effect, "peer"):
                self.pairs.append((w.rank, effect.peer))
            answer = yield effect


# -- AD-PSGD ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_ad_psgd_follows_the_plain_loop(graph):
    """Gradients are taken where a worker was when it began; neighbours may have moved it since."""
    solver = Noting(sgd(0.1), graph=graph)
    sim = run_for(0.5, NOISY, solver, cluster(4, compute="gamma(10ms, 4ms)"))
    xs = oracles.peers.adpsgd([np.ones(3)] * 4, solver.pairs, gradient_of(NOISY), eta=0.1)
    assert len(solver.pairs) == sim.updates > 150
    for w, x in zip(sim.workers, xs, strict=True):
        np.testing.assert_allclose(w.state.x.numpy(), x, rtol=1e-11, atol=1e-13)


def test_neighbours_are_those_of_the_graph():
    for graph, allowed in (
        ("complete", lambda i, j: i != j),
        ("ring", lambda i, j: (i - j) % 5 in (1, 4)),
        ("bipartite", lambda i, j: i % 2 == 0 and j % 2 == 1),
    ):
        solver = Noting(sgd(0.1), graph=graph)
        run_for(1.0, Idle(8), solver, cluster(5, compute="gamma(10ms, 4ms)"))
        assert all(allowed(i, j) for i, j in solver.pairs)
        expected = {(i, j) for i in range(5) for j in range(5) if allowed(i, j)}
        assert set(solver.pairs) == expected


def test_b16_averaging_conserves_the_mean():
    sim = run_for(1.0, Flat(), spread(ADPSGD, sgd(0.1)), cluster(6, compute="gamma(10ms, 4ms)", peers="3ms"))
    np.testing.assert_allclose(sim.point.x.numpy(), starts(6).mean(axis=0), rtol=1e-12)
    for w in sim.workers:
        np.testing.assert_allclose(w.state.x.numpy(), starts(6).mean(axis=0), rtol=1e-3)


def test_b16_a_random_pair_contracts_by_one_minus_one_over_w_minus_one():
    """The sum of squared deviations after one average, over many seeds."""
    W, before, after = 6, starts(6), []

    def deviation(x):
        return ((x - x.mean(axis=0)) ** 2).sum()

    for seed in range(400):
        sim = run_for(0.0105, Flat(), spread(ADPSGD, sgd(0.1)), cluster(W, compute=["10ms@0", "1s@1-5"]), seed=seed)
        after.append(deviation(np.array([w.state.x.numpy() for w in sim.workers])))
    # Worker 0 asks, and its neighbour is uniform over the others: the mean over j of |x_0 - x_j|^2 / 2 is lost.
    lost = np.mean([((before[0] - before[j]) ** 2).sum() / 2 for j in range(1, W)])
    spread_of_mean = np.std(after) / np.sqrt(len(after))
    assert np.mean(after) == pytest.approx(deviation(before) - lost, abs=4 * spread_of_mean)
    # Averaged over who asks as well, that is a factor of 1 - 1/(W - 1), whatever the values.
    pairs = [((before[i] - before[j]) ** 2).sum() / 2 for i in range(W) for j in range(W) if i != j]
    assert 1 - np.mean(pairs) / deviation(before) == pytest.approx(1 - 1 / (W - 1))


def test_a_lost_neighbour_is_not_averaged_with():
    machines = cluster(3, compute="gamma(10ms, 4ms)", peers="2ms", events=["lose 1 at 52ms"])
    sim = run_for(1.0, NOISY, ADPSGD(sgd(0.1), graph="ring"), machines)
    assert sim.workers[0].state.k > 50
    assert sim.workers[2].state.k > 50
    still = sim.workers[1].state.x
    later = run_for(1.5, NOISY, ADPSGD(sgd(0.1), graph="ring"), machines)
    assert torch.equal(later.workers[1].state.x, still)


# -- SGP ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8])
def test_synchronous_push_is_the_matrix_product(workers):
    machines = cluster(workers, compute="gamma(10ms, 4ms)", peers="2ms")
    sim = run_for(0.6, NOISY, SGP(sgd(0.1)), machines)
    rounds = min(w.state.k for w in sim.workers)
    assert rounds > 15
    z = oracles.peers.push_sum(np.ones(3), workers, rounds, gradient_of(NOISY), eta=0.1)
    # The gradient of a worker's next round, k = rounds, is taken at its z_i after so many.
    for i, w in enumerate(sim.workers):
        if w.state.k == rounds and w.job is not None:
            np.testing.assert_allclose(w.job.x.numpy(), z[i], rtol=1e-11)
    assert any(w.state.k == rounds and w.job is not None for w in sim.workers)


def test_gradients_are_taken_at_x_over_the_weight():
    """With overlap the weights differ from 1 while halves are late."""
    machines = cluster(4, compute="gamma(10ms, 6ms)", peers=["7ms", "31ms@0>1"])
    sim = run_for(0.2718, NOISY, SGP(sgd(0.1), overlap=2), machines)
    computing = [w for w in sim.workers if w.job is not None]
    assert any(w.state.weight != 1 for w in computing)
    for w in computing:
        assert torch.equal(w.job.x, w.state.x / w.state.weight)


def mass(sim):
    """Of x and of the weights: with the workers, in their inboxes, and under way."""
    shares = [s for w in sim.workers for s in w.state.inbox.values()]
    shares += [e[4][1] for e in sim.context.events.heap if e[3] == MESSAGE]
    x = sum(w.state.x for w in sim.workers) + sum(s.value for s in shares)
    weight = sum(w.state.weight for w in sim.workers) + sum(s.weight for s in shares)
    return x.numpy(), weight


@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize("workers", [4, 6])
def test_b17_nothing_is_lost_and_the_weights_sum_to_w(workers, overlap):
    machines = cluster(workers, compute="gamma(10ms, 6ms)", peers=["7ms", "31ms@0>1"])
    for seconds in (0.0333, 0.1, 0.2718):
        sim = run_for(seconds, Flat(), spread(SGP, sgd(0.1), overlap=overlap), machines)
        x, weight = mass(sim)
        np.testing.assert_allclose(x, starts(workers).sum(axis=0), rtol=1e-12)
        assert weight == pytest.approx(workers, rel=1e-12)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_b17_powers_of_two_average_exactly_after_log2_w_rounds(workers):
    rounds = workers.bit_length() - 1
    sim = run_for(0.01 * rounds + 0.005, Flat(), spread(SGP, sgd(0.1)), cluster(workers))
    for w in sim.workers:
        np.testing.assert_allclose(w.job.x.numpy(), starts(workers).mean(axis=0), rtol=1e-14)


def test_overlap_does_not_wait_for_late_halves():
    """Latency three times the compute time: without overlap a round takes 40 ms, with 3 rounds of overlap 10 ms."""
    machines = cluster(4, compute="10ms", peers="30ms")
    waits = run_for(4.0, Idle(8), SGP(sgd(0.1)), machines)
    goes_on = run_for(4.0, Idle(8), SGP(sgd(0.1), overlap=3), machines)
    assert waits.updates == pytest.approx(4 * 4.0 / 0.04, abs=8)
    assert goes_on.updates == pytest.approx(4 * 4.0 / 0.01, abs=8)


def test_sgp_goes_on_without_the_lost():
    machines = cluster(4, compute="gamma(10ms, 4ms)", peers="7ms", events=["lose 2 at 55ms"])
    sim = run_for(3.0, NOISY, SGP(sgd(0.1)), machines)
    for i in (0, 1, 3):
        w = sim.workers[i].state
        assert w.k > 100
        assert w.weight > 1e-3, "halves sent to nobody are kept"


@pytest.mark.parametrize("kind", [ADPSGD, SGP])
def test_nobody_joins_later(kind):
    reason = kind(sgd(0.1)).why_not(World(3, Flat.layout, (0, 1), joining=(2,)))
    assert reason is not None
    assert "join later (2)" in reason


def test_a_wrong_graph_lists_the_right_ones():
    with pytest.raises(ConfigError, match="bipartite"):
        ADPSGD(sgd(0.1), graph="bipartit")


def test_one_worker_has_nobody_to_talk_to():
    for solver in (ADPSGD(sgd(0.1)), SGP(sgd(0.1), overlap=1)):
        assert simulate(NOISY, solver, cluster(1), updates=5).sim.bytes == 0
