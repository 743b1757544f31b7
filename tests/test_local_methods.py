"""All-reduce, local SGD, SlowMo and DiLoCo against plain loops and each other (B2, B14, B15)."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import offbeat
import oracles.loops
import oracles.peers
from harness import build, cluster, mlp_task, simulate
from offbeat.core.errors import ConfigError
from offbeat.core.reduction import hierarchical_mean, weighted_mean
from offbeat.core.seeds import key64
from offbeat.solvers.allreduce import AllReduceSGD
from offbeat.solvers.diloco import DiLoCo
from offbeat.solvers.hierarchical import Hierarchical
from offbeat.solvers.local_sgd import LocalSGD
from offbeat.solvers.slowmo import SlowMo
from offbeat.solvers.sync import Sync
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic
from peers import Quartic, gradient_of, run_for, sgd
from synchronous import OPTIMIZERS, Uneven, sync_case

NOISY = Quadratic(3, noise=0.5)
CURVED = Quartic(3, noise=0.5)
ONES = np.ones(3)
UNEQUAL = "gamma(10ms, 4ms)"


# -- B2: all-reduce -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgd", "nesterov", "adam"])
@pytest.mark.parametrize("workers", [2, 5])
def test_b2_ring_sums_in_worker_order_bit_for_bit(workers, name):
    task, model, rounds, keys, machines = sync_case(workers, 15, 8)
    expected = oracles.loops.synchronous(model, F.cross_entropy, OPTIMIZERS[name], rounds, keys)
    out = simulate(task, AllReduceSGD(OPTIMIZERS[name]), machines, updates=15, batch=8, partition="interleaved")
    assert torch.equal(out.x, expected)
    assert set(out.taus) == {0}
    assert out.sim.updates == 15
    assert out.sim.samples == 15 * workers * 8


@pytest.mark.parametrize(("workers", "group"), [(4, 2), (5, 2), (7, 3), (5, 8)])
def test_b2_ragged_groups_are_the_mean_over_workers(workers, group):
    """Sums of groups are added, so that the last, smaller group counts for its members only."""
    task, *_, machines = sync_case(workers, 15, 8, double=True)
    options = {"updates": 15, "batch": 8, "partition": "interleaved"}
    hierarchical = simulate(task, Hierarchical(OPTIMIZERS["momentum"], group=group), machines, **options)
    server = simulate(task, Sync(OPTIMIZERS["momentum"]), machines, **options)
    torch.testing.assert_close(hierarchical.x, server.x, rtol=1e-12, atol=1e-13)


def test_b2_a_mean_of_the_groups_means_would_be_wrong():
    values = [torch.tensor([float(2**i)]) for i in range(5)]
    assert hierarchical_mean(values, [1.0] * 5, 2).item() == pytest.approx(31 / 5)
    assert hierarchical_mean(values, [1, 2, 3, 4, 5], 2).item() == pytest.approx((1 + 4 + 12 + 32 + 80) / 15)
    of_means = np.mean([1.5, 6.0, 16.0])
    assert of_means != pytest.approx(31 / 5)
    assert weighted_mean(values, [1, 2, 3, 4, 5]).item() == pytest.approx(129 / 15)


@pytest.mark.parametrize("solver", [AllReduceSGD(sgd(1.0)), Hierarchical(sgd(1.0), group=2)])
def test_b2_unequal_batches_are_weighted_by_their_samples(solver):
    out = simulate(Uneven(3), solver, cluster(3), updates=1)
    assert out.x.tolist() == pytest.approx([-14 / 6] * 2, rel=1e-15)


@pytest.mark.parametrize("kind", [AllReduceSGD, Hierarchical])
def test_replicas_are_equal_to_the_bit(kind):
    """Parameters and moments of all workers, under a schedule, with one of them lost on the way."""
    solver = kind(OPTIMIZERS["adam"])
    solver.schedule = lambda work: 1 / (1 + work / 100)
    machines = cluster(5, compute=UNEQUAL, latency="1ms", events=["lose 3 at 61ms"])
    sim = run_for(0.5, mlp_task(), solver, machines, batch=4)
    alive = [w.state for w in sim.workers if w.alive]
    assert len(alive) == 4
    assert {w.k for w in alive} == {alive[0].k}
    assert alive[0].k > 15
    for w in alive[1:]:
        assert torch.equal(w.x, alive[0].x)
        assert all(torch.equal(a, b) for a, b in zip(w.opt.moments(), alive[0].opt.moments(), strict=True))


def test_a_ring_has_the_same_bits_as_the_server():
    machines = cluster(4, compute=UNEQUAL)
    ring = simulate(NOISY, AllReduceSGD(OPTIMIZERS["momentum"]), machines, updates=30)
    server = simulate(NOISY, Sync(OPTIMIZERS["momentum"]), machines, updates=30)
    assert torch.equal(ring.x, server.x)
    assert ring.sim.now == server.sim.now


def test_the_clock_of_a_ring_and_of_groups():
    """W = 8, N bytes at 1 byte/us: 10 ms of computing and 2 (W - 1) latency + 2 N (W - 1) / W / bandwidth."""
    machines = cluster(8, compute="10ms", latency="1ms", bandwidth="1MB/s")
    ring = simulate(Idle(8000), AllReduceSGD(sgd(0.1)), machines, updates=10).sim.now
    assert ring == pytest.approx(10 * (0.010 + 2 * 7 * 0.001 + 2 * 8000 * 7 / 8 / 1e6))
    groups = simulate(Idle(8000), Hierarchical(sgd(0.1), group=4), machines, updates=10).sim.now
    assert groups == pytest.approx(10 * (0.010 + 2 * 3 * (0.001 + 0.008) + 2 * 0.001 + 2 * 8000 / 2 / 1e6))


def test_an_all_reduce_of_thousands_is_no_deep_recursion():
    assert simulate(Idle(8), AllReduceSGD(sgd(0.1)), cluster(3000), updates=3).sim.updates == 3


# -- local SGD ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moments", ["local", "average", "reset"])
@pytest.mark.parametrize(("H", "mu"), [(1, 0.0), (3, 0.0), (3, 0.9)])
def test_local_sgd_follows_the_plain_loop(H, mu, moments):
    solver = LocalSGD(sgd(0.1, momentum=mu), H=H, momentum=moments)
    sim = run_for(0.01 * 12 + 0.005, CURVED, solver, cluster(3))
    expected = oracles.peers.local(ONES, 3, 12 // H, gradient_of(CURVED), H=H, eta=0.1, mu=mu, moments=moments)
    np.testing.assert_allclose(sim.point.x.numpy(), expected, rtol=1e-12)


def test_the_three_kinds_of_momentum_are_three_algorithms():
    found = {
        moments: simulate(CURVED, LocalSGD(sgd(0.1, momentum=0.9), H=3, momentum=moments), cluster(3), updates=63).x
        for moments in ("local", "average", "reset")
    }
    for one, other in (("local", "average"), ("local", "reset"), ("average", "reset")):
        assert (found[one] - found[other]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["sgd", "momentum"])
def test_b2_a_meeting_every_step_is_synchronous_sgd(name):
    """For heavy-ball too: the mean of the workers' buffers follows the server's."""
    solver = LocalSGD(OPTIMIZERS[name], H=1, momentum="average")
    local = run_for(0.205, NOISY, solver, cluster(4))
    server = simulate(NOISY, Sync(OPTIMIZERS[name]), cluster(4), updates=20)
    torch.testing.assert_close(local.point.x, server.x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("H", [2, 5, 10])
def test_b14_on_a_common_hessian_the_mean_does_not_depend_on_h(H):
    """Exactly, with noise: the mean of linear steps is the step of the mean."""
    for compute in ("10ms", UNEQUAL):
        every = simulate(NOISY, LocalSGD(sgd(0.3), H=1), cluster(4, compute="10ms"), updates=80)
        some = simulate(NOISY, LocalSGD(sgd(0.3), H=H), cluster(4, compute=compute), updates=80)
        if {w.state.k for w in some.sim.workers} == {20}:
            torch.testing.assert_close(some.x, every.x, rtol=1e-11, atol=1e-13)
        else:
            assert compute == UNEQUAL


def test_it_communicates_once_in_h_steps():
    once = run_for(0.485, Idle(1000), LocalSGD(sgd(0.1), H=1), cluster(4))
    seldom = run_for(0.485, Idle(1000), LocalSGD(sgd(0.1), H=8), cluster(4))
    assert once.bytes == 8 * seldom.bytes > 0


def test_post_local_meets_every_step_at_first():
    """Two epochs of 200 samples, 4 workers with batches of 10: ten steps alone at most once, then five at a time."""
    meetings = []

    class Noting(LocalSGD):
        def outer(self, w, mean):
            if w.rank == 0:
                meetings.append(w.k)
            return super().outer(w, mean)

    run_for(0.505, mlp_task(), Noting(sgd(0.05), H=5, post=2.0), cluster(4), batch=10)
    assert meetings[:10] == list(range(1, 11)), "400 samples are 10 steps of everybody"
    assert meetings[10:14] == [15, 20, 25, 30]
    with pytest.raises(ConfigError, match="epochs"):
        build(NOISY, LocalSGD(sgd(0.1), post=1.0), cluster(2))


# -- SlowMo and DiLoCo --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "beta", "alpha"), [(1, 0.5, 1.0), (4, 0.7, 0.9)])
def test_slowmo_follows_the_plain_loop(H, beta, alpha):
    solver = SlowMo(sgd(0.1), H=H, beta=beta, alpha=alpha)
    sim = run_for(0.01 * 12 + 0.005, CURVED, solver, cluster(3))
    outer = oracles.peers.SlowMomentum(0.1, beta, alpha)
    expected = oracles.peers.local(ONES, 3, 12 // H, gradient_of(CURVED), H=H, eta=0.1, outer=outer)
    np.testing.assert_allclose(sim.point.x.numpy(), expected, rtol=1e-11)


def test_without_slow_momentum_it_is_local_sgd():
    machines = cluster(3, compute=UNEQUAL)
    slow = simulate(NOISY, SlowMo(sgd(0.1), H=4, beta=0.0), machines, updates=60)
    local = simulate(NOISY, LocalSGD(sgd(0.1), H=4), machines, updates=60)
    torch.testing.assert_close(slow.x, local.x, rtol=1e-12, atol=1e-14)


def test_b15_one_worker_that_meets_itself_every_step_is_heavy_ball():
    sim = run_for(0.305, NOISY, SlowMo(sgd(0.1), H=1, beta=0.8), cluster(1))
    x = torch.ones(3, dtype=torch.float64)
    opt = torch.optim.SGD([x], lr=0.1, momentum=0.8)
    for k in range(30):
        x.grad = torch.tensor(gradient_of(NOISY)(x.numpy(), 0, k))
        opt.step()
    torch.testing.assert_close(sim.point.x, x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("H", [1, 4])
def test_diloco_follows_the_plain_loop(H):
    sim = run_for(0.01 * 12 + 0.005, CURVED, DiLoCo(sgd(0.1), H=H), cluster(3))
    outer = oracles.peers.OuterNesterov(0.7, 0.9)
    expected = oracles.peers.local(ONES, 3, 12 // H, gradient_of(CURVED), H=H, eta=0.1, outer=outer)
    np.testing.assert_allclose(sim.point.x.numpy(), expected, rtol=1e-11)


def test_an_outer_step_of_one_without_momentum_is_local_sgd():
    machines = cluster(3, compute=UNEQUAL)
    diloco = simulate(NOISY, DiLoCo(OPTIMIZERS["adam"], H=4, outer_lr=1.0, outer_momentum=0.0), machines, updates=60)
    local = simulate(NOISY, LocalSGD(OPTIMIZERS["adam"], H=4), machines, updates=60)
    torch.testing.assert_close(diloco.x, local.x, rtol=1e-12, atol=1e-14)


def test_a_wrong_outer_optimizer_lists_the_right_ones():
    with pytest.raises(ConfigError, match="adamw"):
        DiLoCo(sgd(0.1), outer="adm")


# -- all of them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["allreduce", "hierarchical", "local-sgd", "slowmo", "diloco", "sgp", "all-to-all"])
def test_workers_that_join_later_are_refused_before_anything_starts(name):
    solver = offbeat.solver(name, lr=0.1)
    with pytest.raises(ConfigError, match="join later"):
        build(NOISY, solver, cluster(3, events=["lose 1 at 1s", "join 1 at 2s"]))


def test_keys_of_gradients_are_those_the_oracles_use():
    """The references are handed the same noise: worker i's k-th gradient."""
    out = simulate(NOISY, LocalSGD(sgd(0.1), H=2), cluster(2), updates=6)
    assert {(r["source"], r["draw"]) for r in out.applied} == {(i, k) for i in range(2) for k in range(3)}
    assert key64(0, "model", 0, 0) != key64(0, "model", 1, 0)
