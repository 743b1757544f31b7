"""Elastic averaging: EASGD, EA-MSGD and EA-wild against plain loops and closed forms (A5, B12, B31)."""

import numpy as np
import pytest
import torch

import oracles.peers
from harness import cluster, simulate
from offbeat.core.effects import Gradient
from offbeat.core.errors import ConfigError
from offbeat.core.solver import World
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.ea_msgd import EAMSGD
from offbeat.solvers.ea_wild_groups import EAWildGroups
from offbeat.solvers.easgd import EASGD
from offbeat.solvers.plain import Plain
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic
from peers import Flat, gradient_of, run_for, sgd, spread, starts

NOISY = Quadratic(3, noise=0.5)
ONES = np.ones(3)


@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize("workers", [1, 3])
def test_equal_workers_follow_the_plain_loop(workers, period):
    solver = EASGD(sgd(0.1), alpha=0.2, period=period)
    sim = run_for(0.125, NOISY, solver, cluster(workers))  # 12 steps each, and a 13th under way
    _, centres = oracles.peers.easgd([ONES] * workers, ONES, 13, gradient_of(NOISY), eta=0.1, alpha=0.2, period=period)
    np.testing.assert_allclose(sim.point.x.numpy(), centres[-1], rtol=1e-13)
    assert sim.updates == 12 * workers


def test_the_gradient_is_taken_before_the_exchange():
    """After it, the first worker's would be another one: the oracle above can see the difference."""
    xs, _ = oracles.peers.easgd([ONES], 0 * ONES, 1, gradient_of(NOISY), eta=0.1, alpha=0.5)
    after = 0.5 * ONES - 0.1 * gradient_of(NOISY)(0.5 * ONES, 0, 0)
    assert not np.allclose(xs[0], after)


def test_exchanges_go_round_whatever_the_speeds():
    """The order of exchanges is 0, 1, 2, 0, 1, 2, ... although worker 2 is five times as fast as worker 0."""
    turns = []

    class Noting(EASGD):
        def _exchange(self, s, worker):
            turns.append(worker)
            return super()._exchange(s, worker)

    simulate(Quadratic(2), Noting(sgd(0.1)), cluster(3, compute=["50ms@0", "30ms@1", "10ms@2"]), updates=60)
    assert turns == [0, 1, 2] * (len(turns) // 3) + [0, 1, 2][: len(turns) % 3]
    turns.clear()
    by_arrival = Noting(sgd(0.1), order="arrival")
    simulate(Quadratic(2), by_arrival, cluster(3, compute=["50ms@0", "30ms@1", "10ms@2"]), updates=60)
    assert turns.count(2) > 2 * turns.count(1) > 2 * turns.count(0)


def test_the_token_passes_over_the_lost_and_takes_in_the_new():
    turns = []

    class Noting(EASGD):
        def _exchange(self, s, worker):
            turns.append(worker)
            return super()._exchange(s, worker)

    events = ["lose 1 at 35ms", "lose 3 at 35ms", "join 3 at 105ms"]
    simulate(Quadratic(2), Noting(sgd(0.1)), cluster(4, events=events), updates=60)
    assert turns[:16] == [0, 1, 2, 3] * 4, "four rounds have begun by then"
    assert turns[16:28] == [0, 2] * 6 or turns[16:30] == [0, 2] * 7
    assert turns[-6:] in ([0, 2, 3] * 2, [2, 3, 0] * 2, [3, 0, 2] * 2)
    turns.clear()
    slow = cluster(3, compute=["10ms", "100ms@1"], events=["lose 1 at 35ms"])  # the others wait for it then
    simulate(Quadratic(2), Noting(sgd(0.1)), slow, updates=20)
    assert turns[:4] == [0, 1, 2, 0]
    assert set(turns[4:]) == {0, 2}
    assert len(turns) > 15


# -- B12 ----------------------------------------------------------------------------------------------------------


def test_b12_without_a_spring_the_workers_are_alone():
    for task in (NOISY, Quadratic(4)):
        sim = run_for(0.2049, task, EASGD(sgd(0.1), alpha=0.0), cluster(3, compute=["10ms", "7ms@1"]))
        assert torch.equal(sim.point.x, task.init(0).x), "the centre never moves"
        for i in range(3):
            x = torch.ones_like(task.h)
            opt = torch.optim.SGD([x], lr=0.1)
            for k in range(sim.workers[i].state.k):
                x.grad = torch.tensor(gradient_of(task)(x.numpy(), i, k))
                opt.step()
            assert torch.equal(sim.workers[i].state.x, x)


def test_b12_an_exchange_conserves_the_sum():
    solver = EASGD(sgd(0.1), alpha=0.25)
    s = solver.init_server(torch.tensor([8.0, -4.0]), World(1, Flat.layout, (0,)))
    x = torch.tensor([24.0, 12.0])
    (reply,) = solver.on_call(s, 0, (x, 0.25))
    assert reply.value.tolist() == [4.0, 4.0]
    assert ((x - reply.value) + s.x).tolist() == [32.0, 8.0]


@pytest.mark.parametrize(
    "solver",
    [
        spread(EASGD, sgd(0.1), alpha=0.3),
        spread(EASGD, sgd(0.1), alpha=0.3, order="arrival"),
        spread(EAMSGD, sgd(0.1), alpha=0.3, delta=0.9),
        spread(EAWildGroups, sgd(0.1), alpha=0.3),
        spread(EAWildGroups, sgd(0.1), alpha=0.3, locked=True),
    ],
    ids=["easgd", "by arrival", "ea-msgd", "ea-wild", "ea-wild locked"],
)
def test_b12_without_slope_all_meet_at_the_mean(solver):
    """Of the workers' starts and the centre's; over shared memory too, where exchanges interleave."""
    sim = run_for(4.0, Flat(), solver, cluster(4, compute="gamma(10ms, 3ms)", memory="4ms"))
    mean = (starts(4).sum(axis=0) + 0) / 5
    for x in (sim.point.x, *(w.state.x for w in sim.workers)):
        np.testing.assert_allclose(x.numpy(), mean, atol=1e-6)


# -- A5 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("eta", [0.5, 1.0, 1.8])
def test_a5_round_robin_is_stable_inside_the_region(eta, workers):
    """On x^2/2: 0 <= eta <= 2, 0 <= alpha <= (4 - 2 eta) / (4 - eta). Tight for one worker only."""
    limit = (4 - 2 * eta) / (4 - eta)
    inside = run_for(8.0, Quadratic(1), EASGD(sgd(eta), alpha=0.97 * limit), cluster(workers))
    assert abs(float(inside.point.x)) < 1e-3
    if workers == 1:
        outside = run_for(8.0, Quadratic(1), EASGD(sgd(eta), alpha=1.03 * limit), cluster(1))
        assert abs(float(outside.point.x)) > 10


# -- B31: EA-MSGD -------------------------------------------------------------------------------------------------


def test_b31_without_momentum_it_is_easgd():
    machines = cluster(3, compute="gamma(10ms, 3ms)")
    plain = run_for(0.5, NOISY, EASGD(sgd(0.1), alpha=0.2), machines)
    without = run_for(0.5, NOISY, EAMSGD(sgd(0.1), delta=0.0, alpha=0.2), machines)
    torch.testing.assert_close(without.point.x, plain.point.x, rtol=1e-13, atol=1e-15)


def test_b31_without_a_spring_the_look_ahead_point_is_nesterov():
    sim = run_for(0.405, NOISY, EAMSGD(sgd(0.1), delta=0.9, alpha=0.0), cluster(2))
    for i in range(2):
        w = sim.workers[i].state
        y = torch.ones(3, dtype=torch.float64)
        opt = torch.optim.SGD([y], lr=0.1, momentum=0.9, nesterov=True)
        for k in range(w.k):
            y.grad = torch.tensor(gradient_of(NOISY)(y.numpy(), i, k))
            opt.step()
        assert w.k == 40
        torch.testing.assert_close(w.x + 0.9 * w.v, y, rtol=1e-12, atol=1e-14)


def test_ea_msgd_follows_the_plain_loop():
    sim = run_for(0.125, NOISY, EAMSGD(sgd(0.1), delta=0.8, alpha=0.2), cluster(3))
    _, _, xc = oracles.peers.eamsgd([ONES] * 3, ONES, 13, gradient_of(NOISY), eta=0.1, alpha=0.2, delta=0.8)
    np.testing.assert_allclose(sim.point.x.numpy(), xc, rtol=1e-13)


# -- strength -----------------------------------------------------------------------------------------------------


def test_rho_is_alpha_over_eta_and_follows_the_schedule():
    machines = cluster(3, compute="gamma(10ms, 3ms)")
    by_alpha = run_for(0.5, NOISY, EASGD(sgd(0.125), alpha=0.25), machines)
    by_rho = run_for(0.5, NOISY, EASGD(sgd(0.125), rho=2.0), machines)
    assert torch.equal(by_alpha.point.x, by_rho.point.x)
    for options, alpha in (({"alpha": 0.25}, 0.25), ({"rho": 2.0}, 0.125), ({}, 0.3)):
        solver = EASGD(sgd(0.125), **options)
        solver.schedule = lambda work: 0.5
        assert solver.strength(solver.init_worker(0, None, World(3, Flat.layout, (0, 1, 2)))) == pytest.approx(alpha)


@pytest.mark.parametrize("kind", [EASGD, EAMSGD, EAWildGroups])
def test_alpha_and_rho_together_are_refused(kind):
    with pytest.raises(ConfigError, match="not both"):
        kind(sgd(0.1), alpha=0.1, rho=1.0)


def test_ea_msgd_refuses_a_second_momentum():
    with pytest.raises(ConfigError, match=r"solver\.delta"):
        EAMSGD(sgd(0.1, momentum=0.9))


@pytest.mark.parametrize("name", ["adam", "lamb", "adagrad"])
def test_workers_take_any_optimizer(name):
    """Without a spring a worker of EASGD is that optimizer's own loop, bit for bit."""
    opt = optimizer_factory(name, lr=0.05)
    machines = cluster(2)
    sim = run_for(0.205, NOISY, EASGD(opt, alpha=0.0), machines)
    alone = simulate(NOISY, Plain(opt), cluster(1), updates=20)
    assert torch.equal(sim.workers[0].state.x, alone.x)


# -- EA-wild ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("memory", ["0s", "4ms"])
def test_one_worker_of_ea_wild_is_easgd_bit_for_bit(memory, locked):
    wild = EAWildGroups(sgd(0.1), alpha=0.3, locked=locked, atomic=locked)
    a = simulate(NOISY, wild, cluster(1, memory=memory), updates=30)
    b = simulate(NOISY, EASGD(sgd(0.1), alpha=0.3), cluster(1), updates=30)
    assert torch.equal(a.sim.workers[0].state.x, b.sim.workers[0].state.x)


class Mine:
    """Worker i's gradient is (i, 1) and stands for i + 1 samples."""

    name, size, nbytes, layout = "mine", None, 16, Flat.layout

    def __init__(self, workers):
        from offbeat.core.seeds import key64

        self._who = {key64(0, "model", i, k): i for i in range(workers) for k in range(50)}

    def init(self, seed):
        return Flat().init(seed)

    def gradient(self, point, batch, key):
        i = self._who[key]
        return Gradient(torch.tensor([float(i), 1.0], dtype=torch.float64), 0.0, i + 1)


def test_a_group_is_synchronous_and_its_replicas_are_equal_to_the_bit():
    """Groups of 2 of 5 workers: {0, 1}, {2, 3}, {4}; gradients weighted by samples within a group."""
    sim = run_for(0.105, Mine(5), EAWildGroups(sgd(1.0), alpha=0.0, group=2), cluster(5, compute="gamma(9ms, 1ms)"))
    states = [w.state for w in sim.workers]
    assert [s.members for s in states] == [(0, 1), (0, 1), (2, 3), (2, 3), (4,)]
    for members in ((0, 1), (2, 3), (4,)):
        mean = sum((i + 1) * i for i in members) / sum(i + 1 for i in members)
        for i in members:
            assert torch.equal(states[i].x, states[members[0]].x)
            torch.testing.assert_close(states[i].x[0], torch.tensor(-mean * states[i].k, dtype=torch.float64))
    leaders = {0: states[0].k, 2: states[2].k, 4: states[4].k}
    assert sim.updates == sum(leaders.values()), "one update a step of a group"


def test_one_member_exchanges_for_its_group():
    sim = run_for(0.105, NOISY, EAWildGroups(sgd(0.1), alpha=0.1, group=3), cluster(6, memory="1ms"))
    exchanges = sim.server.version
    assert exchanges in (sim.updates, sim.updates + 1, sim.updates + 2), "one a step of each of the two groups"
    for group in ((0, 1, 2), (3, 4, 5)):
        xs = [sim.workers[i].state.x for i in group]
        assert all(torch.equal(x, xs[0]) for x in xs)


def test_random_groups_are_a_partition_drawn_from_the_seed():
    def groups(seed):
        solver = EAWildGroups(sgd(0.1), group=3, grouping="random")
        world = World(10, Flat.layout, tuple(range(10)), seed=seed)
        return [solver.init_worker(i, torch.zeros(2), world).members for i in range(10)]

    for seed in range(5):
        found = groups(seed)
        assert all(i in members for i, members in enumerate(found))
        assert sorted(len(m) for m in set(found)) == [1, 3, 3, 3]
        assert found == groups(seed)
    assert groups(0) != groups(1)


def test_a_group_goes_on_without_its_lost_leader():
    events = ["lose 0 at 52ms"]
    machines = cluster(4, compute="10ms", memory="4ms", events=events)
    sim = run_for(0.3, NOISY, EAWildGroups(sgd(0.1), alpha=0.1, group=2, locked=True), machines)
    assert sim.workers[1].state.members == (1,)
    assert sim.workers[1].state.k > 10
    assert sim.memory.holder is None or sim.memory.holder != 0


def test_a_schedule_keeps_the_replicas_of_a_group_equal():
    """Members finish at different moments of the work clock; the group steps at one."""
    solver = EAWildGroups(sgd(0.1), alpha=0.1, group=2)
    solver.schedule = lambda work: 1 / (1 + work)
    sim = run_for(0.2, NOISY, solver, cluster(6, compute="gamma(10ms, 5ms)"))
    for a, b in ((0, 1), (2, 3), (4, 5)):
        if sim.workers[a].state.k == sim.workers[b].state.k:
            assert torch.equal(sim.workers[a].state.x, sim.workers[b].state.x)
    assert sum(sim.workers[i].state.k for i in range(6)) > 40


def test_workers_cannot_join_a_group_later():
    with pytest.raises(ConfigError, match="join later"):
        simulate(Idle(), EAWildGroups(sgd(0.1), group=2), cluster(3, events=["join 2 at 1s"]), updates=1)


# -- the lock and the clock ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_locked_exchanges_queue_and_lock_free_ones_overlap(workers):
    """Compute Z = 10 ms, exchange 2 M = 8 ms. Without a lock W / (Z + 2 M); with it no more than 1 / (2 M)."""
    machines = cluster(workers, compute="10ms", memory="4ms")
    free = run_for(9.0, Idle(100), EAWildGroups(sgd(0.1)), machines)
    locked = run_for(9.0, Idle(100), EAWildGroups(sgd(0.1), locked=True), machines)
    assert free.updates == pytest.approx(9.0 * workers / 0.018, abs=workers)
    assert locked.updates == pytest.approx(9.0 * min(workers / 0.018, 1 / 0.008), abs=2 * workers)
    assert free.bytes / free.server.version == pytest.approx(locked.bytes / locked.server.version, rel=1e-2)


def test_the_work_is_the_same_with_and_without_the_lock_when_nobody_is_in_the_way():
    machines = cluster(1, compute="10ms", memory="4ms")
    free = simulate(NOISY, EAWildGroups(sgd(0.1)), machines, updates=25)
    locked = simulate(NOISY, EAWildGroups(sgd(0.1), locked=True), machines, updates=25)
    assert torch.equal(free.x, locked.x)
    assert free.sim.now == locked.sim.now
