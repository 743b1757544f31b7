"""Workers that compute while their messages are under way: when, how stale, and what becomes of it on the way."""

import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import offbeat
import oracles.events
import oracles.overlap
from cases import CASES
from harness import Stop, cluster, simulate
from harness import build as build_sim
from offbeat.core.effects import Await, Call, Grad, Push, Reply
from offbeat.core.errors import ConfigError, RuleError
from offbeat.core.seeds import key64
from offbeat.core.solver import Solver
from offbeat.core.task import Point
from offbeat.engines.clock import columns
from offbeat.lab.contract import advance, trial
from offbeat.lab.contract.trial import account, compare, reincarnated
from offbeat.optim.delayed import Delayed
from offbeat.solvers import SOLVERS, build, solver_class
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic

LR = 0.05
SGD = partial(torch.optim.SGD, lr=LR)
TASK = Quadratic(4, condition=4.0, noise=0.7)
OVERLAPPING = [c for c in CASES if c.options.get("overlap") is True]


def asgd(**options):
    return build("asgd", SGD, {"overlap": True, **options})


def gradient(x, worker, k, seed=0):
    return TASK.gradient(Point(torch.from_numpy(np.array(x))), None, key64(seed, "model", worker, k)).value.numpy()


# -- the clock: closed forms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("compute", "latency", "service"), [(10, 3, 1), (10, 20, 1), (8, 2, 4), (5, 0, 7), (6, 0, 0)])
def test_a_step_takes_as_long_as_the_longer_of_computing_and_the_way(compute, latency, service):
    machines = cluster(1, compute=f"{compute}ms", latency=f"{latency}ms", service=f"{service}ms")
    without = simulate(Idle(), build("asgd", SGD, {}), machines, updates=200)
    with_it = simulate(Idle(), asgd(), machines, updates=200)
    way = 2 * latency + service

    def between(out):
        return np.diff([r["time"] for r in out.applied]) * 1000

    assert between(without) == pytest.approx(np.full(199, compute + way))
    assert between(with_it) == pytest.approx(np.full(199, max(compute, way)))
    share = with_it.sim.breakdown()[0]
    busy = compute / max(compute, way)
    assert share["computing"] / share["present"] == pytest.approx(busy, abs=0.02)
    assert sum(v for k, v in share.items() if k != "present") == pytest.approx(share["present"])


def test_a_busy_server_is_the_bound_with_or_without_it():
    """20 workers of 1 s at a server that takes 100 ms: it serves 10 a second, and queues grow by the second message."""
    machines = cluster(20, compute="1s", service="100ms")
    summary = offbeat.simulate(machines, asgd(), updates=4000).summary
    assert summary["updates_per_virtual_second"] == pytest.approx(10, rel=0.01)
    assert summary["server_busy_share"] == pytest.approx(1, rel=0.01)


# -- staleness --------------------------------------------------------------------------------------------------------


def test_one_worker_has_a_staleness_of_exactly_one():
    out = simulate(Idle(), asgd(), cluster(1, compute="exponential(1s)", latency="0.3s"), updates=50)
    assert out.taus == [0] + 49 * [1]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 6),
    st.sampled_from(["normal(1s,0.3s)", "exponential(1s)", "pareto(1s,1.5)"]),
    st.sampled_from(["0s", "0.4s", "3s"]),
    st.sampled_from(["0s", "exponential(100ms)"]),
    st.integers(0, 99),
)
def test_staleness_is_conserved(W, compute, latency, service, seed):
    """Two snapshots of every worker live at any moment, one in a gradient that travels or waits to: (2 W - 1) T in all.

    The initial parameters are read twice by each, the second time when its first gradient is there.
    """
    T = 120
    machines = cluster(W, compute=compute, latency=latency, service=service, delay="exponential(2s)@0")
    out = simulate(Idle(), asgd(), machines, updates=T, seed=seed)
    lives = Counter(r["worker"] for r in out.rows if r["outcome"] == "in flight")
    to_come = sum(2 - lives[i] for i in range(W))
    assert all(lives[i] == 2 or out.sim.feed.draws[i] == 1 for i in range(W))
    assert sum(r["staleness"] for r in out.rows) + to_come * T == T * (2 * W - 1)
    assert [r["version_applied"] for r in out.applied] == list(range(T))
    taken = [(r["source"], r["draw"]) for r in out.rows if r["draw"] is not None]
    assert sorted(taken) == [(i, k) for i, n in enumerate(out.sim.feed.draws) for k in range(n)]


# -- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("latency", "service"), [(0.0, 0.0), (0.35, 0.02), (2.5, 0.3)])
def test_the_rule_is_that_of_a_plain_event_loop(latency, service, seed):
    machines = cluster(4, compute="lognormal(1s,0.5s)", latency=latency, service=f"{service}s")
    out = simulate(TASK, asgd(), machines, updates=80, seed=seed, keep=True)
    taken = [{} for _ in range(4)]
    for r in out.rows:
        if r["loss"] is not None:
            taken[r["worker"]][r["draw"]] = r["computed"] - r["started"]
    durations = [[t[k] for k in range(len(t))] + 9 * [1e9] for t in taken]
    x0 = TASK.init(seed).x.numpy()
    expected = oracles.overlap.asgd(
        x0, durations, latency, service, partial(gradient, seed=seed), lambda x, g: x - LR * g, updates=80
    )
    assert [(r["worker"], r["version_read"], r["staleness"]) for r in out.applied] == [u[1:4] for u in expected]
    assert [r["time"] for r in out.applied] == pytest.approx([u.time for u in expected], rel=1e-9)
    for x, u in zip(out.xs, expected, strict=True):
        np.testing.assert_allclose(x.numpy(), u.x, rtol=1e-12)


def test_one_worker_is_sgd_with_a_delay_of_one_bit_for_bit():
    out = simulate(TASK, asgd(), cluster(1, compute="exponential(1s)", latency="0.7s"), updates=40)
    x = TASK.init(0).x.clone().requires_grad_(True)
    loop = Delayed(torch.optim.SGD([x], lr=LR), delay=1)
    for k in range(41):  # the first step of the loop only fills the queue
        x.grad = TASK.gradient(Point(x.detach().clone()), None, key64(0, "model", 0, k)).value
        loop.step()
    assert torch.equal(out.x, x.detach())
    xs = oracles.events.constant_delay(
        TASK.init(0).x.numpy(), 40, 1, lambda y, n: gradient(y, 0, n), lambda y, g: y - LR * g
    )
    np.testing.assert_allclose(out.x.numpy(), xs[-1], rtol=1e-12)


def test_a_worker_pushes_what_its_slot_makes_of_the_gradient_in_the_order_of_the_gradients():
    """Error feedback with everything kept is plain ASGD; with worker momentum it is that of a delay of one."""
    machines = cluster(1, compute="1s", latency="0.3s")
    same = simulate(TASK, build("compressed", SGD, {"share": 1.0, "overlap": True}), machines, updates=30)
    assert torch.equal(same.x, simulate(TASK, asgd(), machines, updates=30).x)
    out = simulate(TASK, build("worker-momentum", SGD, {"overlap": True}), machines, updates=30)
    x, v = [TASK.init(0).x.numpy()], 0.0
    for n in range(30):
        v = 0.9 * v + gradient(x[max(0, n - 1)], 0, n)
        x.append(x[-1] - LR * v)
    np.testing.assert_allclose(out.x.numpy(), x[-1], rtol=1e-11)


# -- who allows it ----------------------------------------------------------------------------------------------------

SERVERS = [n for n in SOLVERS if issubclass(solver_class(n), ParameterServer)]


@pytest.mark.parametrize("name", SERVERS)
def test_a_solver_allows_it_or_refuses_it_with_its_reason_in_one_line(name):
    reason = build(name, SGD, {}).needs_answer
    assert (reason is None) == any(c.solver == name for c in OVERLAPPING)
    if reason is None:
        made = build(name, SGD, {"overlap": True})
        assert made.overlap
        assert made.asks == {Grad, Call, Push, Await}
        assert not made.answers_at_once
        assert "under way" in columns.why_not(made, cluster(3))
        return
    with pytest.raises(ConfigError, match=r"solver\.overlap must be false for ") as caught:
        build(name, SGD, {"overlap": True})
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_is_off_unless_asked_for_and_must_be_true_or_false():
    assert not build("asgd", SGD, {}).overlap
    assert not build("sync", SGD, {"overlap": False}).overlap
    with pytest.raises(ConfigError, match=r"solver\.overlap must be true or false, got 1"):
        build("asgd", SGD, {"overlap": 1})
    with pytest.raises(ConfigError, match="does not declare"):
        ParameterServer(SGD).overlap = True
    with pytest.raises(ConfigError, match=r"with solver\.stops"):
        build("ringmaster", SGD, {"stops": True, "overlap": True})


# -- who comes, goes, is finished -------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", ["0s", "30ms", "3s"])
def test_a_worker_that_has_done_its_part_leaves_when_its_last_gradient_was_used(latency):
    machines = cluster(3, compute=["1s", "0.2s@1"], latency=latency)
    sim = build_sim(TASK, asgd(), machines, samples_per_worker=10)
    assert sim.run(Stop().watch(sim)) == "idle"
    sim.finish()
    assert sim.samples_applied == sim.samples == 30
    assert sim.updates == 30


@pytest.mark.parametrize("at", [0.5, 1.2, 1.31, 1.5, 2.35, 4.05])
def test_what_a_lost_worker_had_under_way_is_lost_and_the_others_go_on(at):
    machines = cluster(3, compute="1s", latency="0.3s", service="0.05s", events=[f"lose 1 at {at}s", "join 1 at 6s"])
    out = simulate(Idle(), asgd(), machines, updates=60)
    assert out.ended == "watcher"
    taken = [(r["source"], r["draw"]) for r in out.rows if r["draw"] is not None]
    assert sorted(taken) == [(i, k) for i, n in enumerate(out.sim.feed.draws) for k in range(n)]
    lost = [r for r in out.rows if r["outcome"] == "lost"]
    assert 1 <= len(lost) <= 2
    assert {r["worker"] for r in lost} == {1}
    assert any(r["worker"] == 1 and r["applied"] and r["time"] > 6 for r in out.rows)


def test_whoever_is_told_of_its_loss_sends_what_it_has_and_begins_nothing_else():
    machines = cluster(3, compute="1s", latency="0.1s", loss="every 5.5s, notice 2s@1")
    out = simulate(Idle(), asgd(), machines, updates=60)
    mine = [r for r in out.rows if r["worker"] == 1]
    assert {r["outcome"] for r in mine} == {"applied"}
    assert max(r["started"] for r in mine) <= 3.5


# -- checkpoints ------------------------------------------------------------------------------------------------------


FAR = {"latency": "25ms"}


@pytest.mark.parametrize("times", [{}, {"latency": "0s", "service": "0s"}, FAR], ids=["usual", "at once", "far"])
@pytest.mark.parametrize("case", OVERLAPPING, ids=str)
def test_a_run_that_is_resumed_in_the_middle_of_a_round_has_the_same_bits(case, times):
    """Saved after each of many single events: with a message under way, an answer that waits, neither, both."""
    whole = trial(case, **times)
    advance(whole, case.events)
    seen = set()
    sim = trial(case, **times)
    for _ in range(case.events):
        advance(sim, 1)
        for w in sim.workers:
            seen.add((w.rounds.pushed is not None, w.rounds.early is not None, w.job is not None))
        if random.Random(sim.context.events.sequence).random() < 0.5:
            sim = reincarnated(sim, trial(case, **times))
    compare(account(sim), account(whole), "when a run is saved and restored again and again")
    assert any(early for _, early, _ in seen) == (times is not FAR)
    assert any(pushed and not early and job for pushed, early, job in seen) == (times.get("latency") != "0s")


# -- rules of one's own -----------------------------------------------------------------------------------------------


class Careless(Solver):
    """Asks for what its test says, round by round."""

    asks = frozenset({Grad, Call, Push, Await})

    def __init__(self, *wishes):
        self.wishes, self.answers = wishes, []

    def init_server(self, x0, world):
        return None

    def init_worker(self, rank, x0, world):
        return None

    def round(self, w):
        for wish in self.wishes:
            self.answers.append((yield wish))

    def on_call(self, s, worker, payload):
        yield Reply(worker, None)

    def parameters(self, s, workers):
        return torch.zeros(1)


@pytest.mark.parametrize(
    ("wishes", "match"),
    [
        ((Await(),), "Careless asked for Await without a Push"),
        ((Push(), Push()), "Careless asked for Push while its Push was not answered"),
        ((Push(), Grad(None)), "Careless ended a round without an Await"),
        ((Push(), Call()), "Careless asked for Call while its Push was not answered"),
        ((Push(), Await(), Await()), "Careless asked for Await without a Push"),
    ],
)
def test_a_rule_that_does_not_wait_for_its_answer_is_named(wishes, match):
    sim = build_sim(Idle(), Careless(*wishes), cluster(1, compute="1s", latency="1s"))
    with pytest.raises(RuleError, match=match):
        sim.run(Stop(ticks=9).watch(sim))
