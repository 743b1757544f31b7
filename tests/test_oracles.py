"""The simulator and its solvers against independent references: closed forms, hand-written loops, counting.

A1, A2, ... are stability limits, B1, B2, ... identities, numbered through all the tests. "Bitwise" is meant.
"""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import offbeat
import oracles.events
import oracles.loops
import oracles.quadratic
from harness import Mlp, cluster, mlp_task, points, simulate
from offbeat.core.layout import Layout
from offbeat.core.seeds import key64
from offbeat.core.task import Point
from offbeat.optim.steppers import TorchStepper
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.constant_delay import ConstantDelay
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.solvers.plain import Plain
from offbeat.solvers.sync import Sync
from offbeat.tasks.idle import Idle
from offbeat.tasks.models.lenet import lenet5
from offbeat.tasks.quadratic import Quadratic
from synchronous import OPTIMIZERS, Uneven, draws, sync_case

SGD = OPTIMIZERS["sgd"]


def sgd(lr, **options):
    return partial(torch.optim.SGD, lr=lr, **options)


# -- A: stability limits, through the real simulator --------------------------------------------------------------


def trajectory(solver, workers, steps):
    """x after every update on x^2 / 2 from x_0 = 1, with equal workers."""
    out = simulate(Quadratic(1), solver, cluster(workers), updates=steps, keep=True)
    assert len(out.xs) == steps
    return np.array([1.0] + [float(x) for x in out.xs])


def measured_growth(x, window):
    """The factor a step, from the largest |x| in two windows far apart."""
    half = len(x) // 2
    early, late = np.abs(x[half - window : half]).max(), np.abs(x[-window:]).max()
    return (late / early) ** (1 / (len(x) - half))


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_a1_equal_workers_are_stable_up_to_the_limit_and_not_beyond(workers):
    tau = workers - 1
    limit = 2 * math.sin(math.pi / (2 * (2 * tau + 1)))
    assert limit == pytest.approx(oracles.quadratic.limit(tau), rel=1e-9)
    for side in (0.97, 1.03):
        a = side * limit
        x = trajectory(ASGD(sgd(a)), workers, steps=200 * workers)
        np.testing.assert_allclose(x, oracles.quadratic.trajectory(a, tau, 200 * workers), rtol=1e-9, atol=1e-9)
        rate = measured_growth(x, window=8 * workers)
        assert (rate < 1) == (side < 1)
        assert rate == pytest.approx(oracles.quadratic.growth(a, tau), abs=2e-3)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("mu", [0.5, 0.9])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_a3_momentum_and_staleness_are_stable_up_to_the_limit_and_not_beyond(workers, mu, nesterov):
    tau = workers - 1
    limit = oracles.quadratic.limit(tau, mu, nesterov)
    for side in (0.95, 1.05):
        a = side * limit
        x = trajectory(ASGD(sgd(a, momentum=mu, nesterov=nesterov)), workers, steps=600)
        expected = oracles.quadratic.trajectory(a, tau, 600, mu=mu, nesterov=nesterov)
        np.testing.assert_allclose(x, expected, rtol=1e-8, atol=1e-8)
        assert (measured_growth(x, window=150) < 1) == (side < 1)


def test_a3_limits_have_the_known_values():
    for mu in (0.3, 0.9):
        assert oracles.quadratic.limit(0, mu) == pytest.approx(2 * (1 + mu))
        assert oracles.quadratic.limit(1, mu) == pytest.approx(1 - mu)
        assert oracles.quadratic.limit(0, mu, nesterov=True) == pytest.approx(2 * (1 + mu) / (1 + 2 * mu))
    for tau, value in ((1, 0.2531), (2, 0.0807), (4, 0.0326)):
        assert oracles.quadratic.limit(tau, 0.9, nesterov=True) == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize("tau", [1, 2, 4])
def test_a2_the_fastest_learning_rate_under_a_constant_delay(tau):
    """lr h = tau^tau / (tau+1)^(tau+1) gives rate tau / (tau+1), the best there is; x oscillates iff it is beyond."""
    best = tau**tau / (tau + 1) ** (tau + 1)
    rates = {}
    for side in (0.8, 1.0, 1.25):
        x = trajectory(ConstantDelay(sgd(side * best), delay=tau), 1, steps=120)
        assert (x.min() < 0) == (side > 1)
        rates[side] = measured_growth(x, window=20)
    assert rates[1.0] == min(rates.values())
    # A double root: x_t ~ t rate^t, so that the measured rate lies a little above it.
    assert rates[1.0] == pytest.approx(tau / (tau + 1), rel=0.02)


# -- B1: one worker is SGD ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_b1_one_worker_is_a_torch_loop_bit_for_bit(name):
    train = points(90)
    task = mlp_task(lambda: nn.Dropout(0.3), train=train)
    batches, keys = draws(task, 5, 16, 40, train)
    torch.manual_seed(5)
    expected = oracles.loops.train(Mlp(nn.Dropout(0.3)), F.cross_entropy, OPTIMIZERS[name], batches, keys)
    for solver in (Plain(OPTIMIZERS[name]), ASGD(OPTIMIZERS[name]), Sync(OPTIMIZERS[name])):
        run = offbeat.train(task, solver, 1, budget="40updates", batch=16, seed=5, out=False)
        assert run.status == "done"
        assert torch.equal(run.params, expected), type(solver).__name__
        assert set(run.trace["staleness"].to_pylist()) == {0}


def test_b1_lenet_with_dropout_is_a_torch_loop_bit_for_bit():
    def make():
        return nn.Sequential(nn.Dropout2d(0.1), lenet5(), nn.Dropout(0.2))

    g = torch.Generator().manual_seed(0)
    train = (torch.randn(48, 1, 32, 32, generator=g), torch.randint(0, 10, (48,), generator=g))
    task = offbeat.task(make, F.cross_entropy, train)
    batches, keys = draws(task, 0, 8, 12, train)
    torch.manual_seed(0)
    expected = oracles.loops.train(make(), F.cross_entropy, OPTIMIZERS["momentum"], batches, keys)
    run = offbeat.train(task, ASGD(OPTIMIZERS["momentum"]), 1, budget="12updates", batch=8, out=False)
    assert torch.equal(run.params, expected)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_b1_one_worker_on_a_quadratic_is_the_rule_in_numpy(name):
    task = Quadratic(4, condition=5.0)
    options = dict(OPTIMIZERS[name].keywords)
    rule = oracles.loops.Recipe(name, options["lr"])
    x, h = np.ones(4), task.h.numpy()
    out = simulate(task, ASGD(OPTIMIZERS[name]), cluster(), updates=80, keep=True)
    for got in out.xs:
        x = rule.step(x, h * x)
        np.testing.assert_allclose(got.numpy(), x, rtol=1e-10, atol=1e-12)


def test_a_different_optimizer_gives_other_parameters():
    """The comparisons above can tell the optimizers apart."""
    finals = [simulate(Quadratic(4), ASGD(o), cluster(), updates=5).x for o in OPTIMIZERS.values()]
    assert len({tuple(x.tolist()) for x in finals}) == len(finals)


# -- B2: synchronous is one large batch ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_b2_sync_sums_in_worker_order_bit_for_bit(workers, name):
    task, model, rounds, keys, machines = sync_case(workers, 15, 8)
    expected = oracles.loops.synchronous(model, F.cross_entropy, OPTIMIZERS[name], rounds, keys)
    out = simulate(task, Sync(OPTIMIZERS[name]), machines, updates=15, batch=8, partition="interleaved")
    assert torch.equal(out.x, expected)
    assert set(out.taus) == {0}
    assert [r["worker"] for r in out.applied[:workers]] == list(range(workers))[::-1], "arrival order was to differ"


def test_b2_the_order_of_the_sum_matters_in_this_test():
    """In arrival order the bits would be others, so the test above can see the difference."""
    task, model, rounds, keys, machines = sync_case(5, 15, 8)
    backwards = [r[::-1] for r in rounds], [k[::-1] for k in keys]
    other = oracles.loops.synchronous(model, F.cross_entropy, SGD, *backwards)
    out = simulate(task, Sync(SGD), machines, updates=15, batch=8, partition="interleaved")
    assert not torch.equal(out.x, other)
    assert torch.allclose(out.x, other, atol=1e-6)


@pytest.mark.parametrize("workers", [2, 4])
def test_b2_sync_is_one_fused_batch_up_to_rounding(workers):
    task, model, rounds, _, machines = sync_case(workers, 20, 6, double=True)
    fused = [tuple(torch.cat(part) for part in zip(*batches, strict=True)) for batches in rounds]
    expected = oracles.loops.train(model, F.cross_entropy, OPTIMIZERS["momentum"], fused, [0] * len(fused))
    out = simulate(task, Sync(OPTIMIZERS["momentum"]), machines, updates=20, batch=6, partition="interleaved")
    torch.testing.assert_close(out.x, expected, rtol=1e-12, atol=1e-13)


def test_b2_unequal_batches_are_weighted_by_their_samples():
    """(1*1 + 2*2 + 3*3) / (1 + 2 + 3), not (1 + 2 + 3) / 3."""
    out = simulate(Uneven(3), Sync(sgd(1.0)), cluster(3), updates=1)
    assert out.x.tolist() == pytest.approx([-14 / 6] * 2, rel=1e-15)
    assert out.sim.samples == 6


# -- B5, B29: schedules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_b5_equal_workers_have_staleness_0_to_w_minus_1_and_then_w_minus_1(workers):
    task = Quadratic(3, noise=0.5)
    out = simulate(task, ASGD(SGD), cluster(workers), updates=6 * workers, keep=True, partition="interleaved")
    assert out.taus == [*range(workers), *[workers - 1] * (5 * workers)]
    assert [r["worker"] for r in out.applied] == list(range(workers)) * 6

    def gradient(x, n):
        return task.gradient(Point(x), None, key64(0, "model", 0, n)).value

    xs = oracles.events.constant_delay(
        torch.ones(3, dtype=torch.float64), 6 * workers, workers - 1, gradient, lambda x, g: x.add(g, alpha=-0.05)
    )
    for got, expected in zip(out.xs, xs[1:], strict=True):
        assert torch.equal(got, expected)


schedules = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=1, max_size=5).map(
    lambda gaps: sorted((float(t), w) for w, g in enumerate(gaps) for t in np.cumsum(g))
)


@settings(deadline=None, max_examples=60)
@given(schedules)
def test_asgd_follows_any_schedule_bit_for_bit(finishes):
    """Finish times with many ties; versions, staleness and parameters against the naive server."""
    workers = max(w for _, w in finishes) + 1
    task = Quadratic(2, noise=0.3)

    def gradient(x, w, k):
        return task.gradient(Point(x), None, key64(0, "model", w, k)).value

    expected = oracles.events.asgd(
        torch.ones(2, dtype=torch.float64), finishes, gradient, lambda x, g: x.add(g, alpha=-0.05), workers
    )
    out = simulate(task, ASGD(SGD), cluster(workers, schedule=finishes), updates=10**9, keep=True)
    assert out.ended == "idle"
    assert [(r["worker"], r["version_read"], r["staleness"]) for r in out.applied] == [e[:3] for e in expected]
    assert [r["time"] for r in out.applied] == [t for t, _ in finishes]
    assert [r["version_applied"] for r in out.applied] == list(range(len(finishes)))
    assert all(torch.equal(a, e.x) for a, e in zip(out.xs, expected, strict=True))


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_b29_constant_delay_is_equal_workers_d_steps_late_bit_for_bit(delay, name):
    opt = OPTIMIZERS[name]
    for task in (Quadratic(3, noise=0.5), mlp_task(lambda: nn.Dropout(0.3))):
        options = {"updates": 40, "keep": True, "batch": 8, "partition": "interleaved"}
        several = simulate(task, ASGD(opt), cluster(delay + 1), **options)
        one = simulate(task, ConstantDelay(opt, delay=delay), cluster(), **options)
        assert all(torch.equal(a, b) for a, b in zip(several.xs, one.xs, strict=True))
        assert several.taus == one.taus
        # Late by d: gradient n is computed as the n-th, and applied as the (n + d)-th arrives.
        assert [r["draw"] for r in one.applied] == list(range(40))
        assert [round(r["time"] / 0.01) for r in one.applied] == list(range(delay + 1, delay + 41))
        assert one.sim.feed.draws == [40 + delay + 1]


def test_b29_filling_at_once_is_another_trajectory_with_each_of_the_first_gradients_used_twice():
    waiting = simulate(Quadratic(3), ConstantDelay(SGD, delay=3), cluster(), updates=20)
    at_once = simulate(Quadratic(3), ConstantDelay(SGD, delay=3, filling="immediate"), cluster(), updates=20)
    assert not torch.equal(waiting.x, at_once.x)
    assert [r["draw"] for r in at_once.applied][:6] == [0, 1, 2, 0, 1, 2]


# -- B6: the conservation law -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("compute", ["normal(1s,0.3s)", "exponential(1s)", "lognormal(1s,1s)", "pareto(1s,1.5)"])
def test_b6_applied_staleness_is_t_times_w_minus_1_less_the_ages_in_flight(compute, seed):
    W, T = 7, 400
    machines = cluster(W, compute=compute, delay="exponential(2s)@0,3")
    out = simulate(Idle(), ASGD(SGD), machines, updates=T, seed=seed)
    in_flight = [r["staleness"] for r in out.rows if r["outcome"] == "in flight"]
    assert len(out.taus) == T
    assert len(in_flight) == W
    assert sum(out.taus) == T * (W - 1) - sum(in_flight)


times = st.sampled_from(
    [
        "normal(1s,0.3s)",
        "exponential(1s)",
        "lognormal(1s,0.5s)",
        "gamma(1s,0.4s)",
        "pareto(1s,2.5)",
        "exponential(50ms)",
    ]
)


@st.composite
def clusters(draw, rejoin):
    """Random machines whose event times are distinct almost surely."""
    W = draw(st.integers(1, 6))
    events = []
    for i in range(W):
        kinds = ["lose join", "lose join lose", "join lose join"] if rejoin else ["", "lose", "join lose"]
        kind = draw(st.sampled_from(kinds)) if i else ""  # worker 0 stays
        at = draw(st.floats(0.1, 3.0))
        for what in kind.split():
            events.append(f"{what} {i} at {at!r}s")
            at += draw(st.floats(0.01, 1.5 if rejoin else 4.0))
    return cluster(
        W,
        compute=[draw(times), *(f"{draw(times)}@{i}" for i in range(W))],
        delay=draw(st.sampled_from([[], ["exponential(3s)@0"]])),
        latency=draw(st.sampled_from([0.0, 0.7, 1.7] if rejoin else [0.0, 0.0, 0.013, 1.7])),
        service=draw(st.sampled_from(["0s", "0s", "exponential(20ms)", "normal(300ms,20ms)"])),
        events=events,
    )


def check_conservation(machines, seed, bound):
    gate = None if bound is None else (lambda s, arrival: arrival.tau < bound)
    solver = ParameterServer(SGD, gate=gate)
    out = simulate(Idle(), solver, machines, updates=80, seed=seed)
    # A snapshot that was still under way to its worker has no batch and no start, so the clock cannot tell its age.
    begun = [r for r in out.rows if r["draw"] is not None]
    left, right = oracles.events.ages_and_snapshots(begun, link=machines.latency)
    assert left == right
    applied = out.applied
    if not machines.events:  # every worker has one live snapshot at any moment, refused or not
        assert sum(r["staleness"] for r in out.rows) == len(applied) * (machines.workers - 1)
    assert [r["version_applied"] for r in applied] == list(range(len(applied))), "one version an update"
    assert all(r["staleness"] == r["version_applied"] - r["version_read"] >= 0 for r in out.rows)
    if bound is not None:
        assert all(r["staleness"] < bound for r in applied)
        assert all(r["staleness"] >= bound for r in out.rows if r["outcome"] == "refused")
    # Each batch is accounted for exactly once, whatever became of its gradient.
    taken = [(r["source"], r["draw"]) for r in begun]
    assert sorted(taken) == [(i, k) for i, n in enumerate(out.sim.feed.draws) for k in range(n)]
    return out


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(rejoin=False), st.integers(0, 10**6), st.sampled_from([None, 1, 2, 4]))
def test_b6_the_law_holds_for_any_cluster_and_any_gate(machines, seed, bound):
    check_conservation(machines, seed, bound)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(rejoin=True), st.integers(0, 10**6), st.sampled_from([None, 1, 2, 4]))
def test_b6_the_law_holds_when_lost_workers_come_back(machines, seed, bound):
    check_conservation(machines, seed, bound)


def test_b6_the_law_is_tried_on_every_outcome():
    """Refused, lost and in-flight gradients do occur in clusters like those above."""
    machines = cluster(4, compute=["exponential(1s)", "9s@3"], latency="10ms", events=["lose 3 at 4s", "join 2 at 3s"])
    out = check_conservation(machines, 0, 3)
    assert {r["outcome"] for r in out.rows} == {"applied", "refused", "lost", "in flight"}


def test_a_reply_to_an_earlier_life_is_void():
    """A worker is lost while its gradient is under way, and comes back before it arrives."""
    machines = cluster(2, compute="1s", latency="1s", events=["lose 1 at 1.3s", "join 1 at 1.5s"])
    out = simulate(Quadratic(2), ASGD(SGD), machines, updates=20)
    mine = [r for r in out.rows if r["worker"] == 1]
    # Gradient 0 was under way when the worker was lost; it asks at 1.5, is answered at 3.5 and needs 1 s a gradient.
    assert [r["started"] for r in mine[:3]] == [0.0, 3.5, 6.5]
    for before, after in pairwise(mine):
        assert before["computed"] <= after["started"], "a worker computes one gradient at a time"


# -- B7, B25: statistics of staleness -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_b7_exponential_workers_have_geometric_staleness(seed):
    """iid: P(tau = k) = p (1-p)^k with p = 1/W, so mean W - 1, variance W (W-1); throughput W. 20,000 updates."""
    W, T = 6, 20_000
    out = simulate(Idle(), ASGD(SGD), cluster(W, compute="exponential(1s)"), updates=T, seed=seed)
    taus = np.array(out.taus[200:])
    assert taus.mean() == pytest.approx(W - 1, rel=0.01)
    assert taus.var() == pytest.approx(W * (W - 1), rel=0.08)
    p = 1 / W
    for k in range(12):
        assert (taus == k).mean() == pytest.approx(p * (1 - p) ** k, abs=0.012)
    assert out.sim.now == pytest.approx(T / W, rel=0.03)


@pytest.mark.parametrize("seed", range(2))
def test_b7_the_mean_staleness_of_a_worker_is_the_others_rate_over_its_own(seed):
    means = [0.5, 1.0, 2.0, 4.0]
    compute = [f"exponential({m}s)@{i}" for i, m in enumerate(means)]
    out = simulate(Idle(), ASGD(SGD), cluster(4, compute=compute), updates=30_000, seed=seed)
    rates = [1 / m for m in means]
    for i, rate in enumerate(rates):
        taus = np.array([r["staleness"] for r in out.applied if r["worker"] == i])
        expected = (sum(rates) - rate) / rate
        assert taus.mean() == pytest.approx(expected, rel=0.06)
        assert (taus == 0).mean() == pytest.approx(rate / sum(rates), abs=0.02)
        assert len(taus) / 30_000 == pytest.approx(rate / sum(rates), rel=0.06)
    assert 30_000 / out.sim.now == pytest.approx(sum(rates), rel=0.03)


@pytest.mark.parametrize(("workers", "std"), [(8, 1.81), (16, 3.43), (32, 6.65)])
def test_b25_normal_workers_have_mean_w_minus_1_and_the_known_spread(workers, std):
    spreads = []
    for seed in range(2):
        machines = cluster(workers, compute="normal(1s,0.2s)")
        taus = np.array(simulate(Idle(), ASGD(SGD), machines, updates=12_000, seed=seed).taus[50 * workers :])
        assert taus.mean() == pytest.approx(workers - 1, rel=0.01)
        spreads.append(taus.std())
    assert np.mean(spreads) == pytest.approx(std, rel=0.04)


def test_b23_a_synchronous_step_takes_the_slowest_of_w():
    """iid Exp(1): H_W seconds a step in the mean."""
    W, T = 5, 6_000
    out = simulate(Idle(), Sync(SGD), cluster(W, compute="exponential(1s)"), updates=T)
    assert out.sim.now / T == pytest.approx(sum(1 / k for k in range(1, W + 1)), rel=0.03)


def test_a_server_bounds_the_throughput():
    """Service D, compute Z: min(W / (Z + D), 1 / D) updates a second, reached with constant times."""
    for workers, service, rate in ((2, 0.1, 2 / 1.1), (20, 0.1, 10.0)):
        machines = cluster(workers, compute="1s", service=f"{service}s")
        out = simulate(Idle(), ASGD(SGD), machines, updates=4_000)
        assert 4_000 / out.sim.now == pytest.approx(rate, rel=0.01)
        assert out.sim.served == pytest.approx(4_000 * service, rel=0.01)


# -- what scales ---------------------------------------------------------------------------------------------------


def steps(name, gradient_scale=1.0, factor=1.0):
    x0 = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    stepper = TorchStepper(OPTIMIZERS[name], x0, Layout.of([("x", (3,))]))
    g = torch.Generator().manual_seed(0)
    grads = [torch.randn(3, generator=g, dtype=torch.float64) for _ in range(10)]
    return torch.stack([x0, *(stepper.step(gradient_scale * grad, factor) for grad in grads)]).diff(dim=0)


def test_a_constant_gradient_scale_leaves_adam_unmoved_and_a_step_factor_does_not():
    plain = steps("adam")
    torch.testing.assert_close(steps("adam", gradient_scale=0.1), plain, rtol=1e-4, atol=0)
    torch.testing.assert_close(steps("adam", factor=0.1), 0.1 * plain, rtol=1e-9, atol=1e-15)


def test_for_plain_sgd_both_are_the_same():
    torch.testing.assert_close(steps("sgd", gradient_scale=0.1), steps("sgd", factor=0.1), rtol=1e-12, atol=1e-15)


def test_a_step_factor_lasts_for_one_step_and_stays_out_of_the_momentum():
    x0 = torch.zeros(1, dtype=torch.float64)
    stepper = TorchStepper(sgd(1.0, momentum=0.5), x0, Layout.of([("x", (1,))]))
    one = torch.ones(1, dtype=torch.float64)
    assert stepper.step(one, 0.1).item() == pytest.approx(-0.1)
    # v = 0.5 * 1 + 1, whatever the factor was.
    assert stepper.step(one).item() == pytest.approx(-1.6)
    assert stepper.lr == 1.0


def test_momentum_and_asynchrony_compound():
    """mu 0.9 at lr 0.05 is stable alone and not with eight workers."""
    alone = trajectory(ASGD(sgd(0.05, momentum=0.9)), 1, steps=400)
    eight = trajectory(ASGD(sgd(0.05, momentum=0.9)), 8, steps=400)
    assert abs(alone[-1]) < 1e-3
    assert abs(eight[-1]) > 1e3
