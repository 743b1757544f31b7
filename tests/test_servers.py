"""Server-side methods against naive references and closed forms. B3, B8, ... are identities, see test_oracles.py."""

import math
import re
import sys
from copy import copy
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import oracles.servers as naive
from harness import cluster, mlp_task, simulate
from offbeat.core.codec import Codec
from offbeat.core.effects import Gradient, Reply, View
from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.layout import Layout
from offbeat.core.seeds import key64
from offbeat.core.solver import World
from offbeat.core.task import Point
from offbeat.lab.contract import CHECKS, Case
from offbeat.solvers import build
from offbeat.solvers.compressed import compress
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic

LR = 0.05
SEEDS = range(3)


def sgd(lr=LR, **options):
    return partial(torch.optim.SGD, lr=lr, **options)


def solver(name, opt=None, **options):
    return build(name, opt or sgd(), options)


TASK = Quadratic(4, condition=4.0, noise=0.7)


def gradient(x, worker, k, seed=0):
    return TASK.gradient(Point(torch.from_numpy(np.array(x))), None, key64(seed, "model", worker, k)).value.numpy()


def durations(out, workers):
    """How long each gradient took, from the trace; the reference works out everything else."""
    taken = [{} for _ in range(workers)]
    for r in out.rows:
        if r["loss"] is not None:
            taken[r["worker"]][r["draw"]] = r["computed"] - r["started"]
    return [[t[k] for k in range(len(t))] for t in taken]


ADAGRAD = partial(torch.optim.Adagrad, lr=LR)
REFERENCES = {
    "asgd": (naive.Asgd, solver("asgd")),
    "dc-asgd": (naive.DelayCompensated, solver("dc-asgd", lam=2.0)),
    "dc-asgd, adaptive": (naive.DelayCompensatedAdaptive, solver("dc-asgd", lam=2.0, adaptive=True)),
    "async-momentum": (naive.ServerMomentum, solver("async-momentum")),
    "async-momentum, nesterov": (naive.ServerNesterov, solver("async-momentum", nesterov=True)),
    "asgd, torch's momentum": (naive.ServerMomentum, solver("asgd", sgd(momentum=0.9))),
    "multi-asgd": (naive.PerWorkerMomentum, solver("multi-asgd")),
    "multi-asgd, nesterov": (naive.PerWorkerNesterov, solver("multi-asgd", nesterov=True)),
    "worker-momentum": (naive.PerWorkerMomentum, solver("worker-momentum")),
    "dana-slim": (naive.PerWorkerNesterov, solver("dana-slim")),
    "dana-zero": (naive.DanaZero, solver("dana-zero")),
    "sync": (naive.Sync, solver("sync")),
    "backup": (naive.Backup, solver("backup", backups=1)),
    "ssp": (naive.Ssp, solver("ssp", s=2)),
    "staleness-aware": (naive.StalenessAware, solver("staleness-aware")),
    "softsync": (naive.Softsync, solver("softsync", n=2)),
    "delay-adaptive, mishchenko": (naive.Mishchenko, solver("delay-adaptive")),
    "delay-adaptive, koloskova": (naive.Koloskova, solver("delay-adaptive", rule="koloskova", smoothness=3.0)),
    "delay-adaptive, koloskova drops": (naive.KoloskovaDrops, solver("delay-adaptive", rule="koloskova")),
    "gap-aware": (naive.GapAware, solver("gap-aware")),
    "gap-aware, momentum": (naive.GapAwareMomentum, solver("gap-aware", sgd(momentum=0.9))),
    "ringmaster": (naive.Ringmaster, solver("ringmaster", R=3)),
    "rennala": (naive.Rennala, solver("rennala")),
    "ringleader": (naive.Ringleader, solver("ringleader")),
    "schedule-free": (naive.ScheduleFree, solver("schedule-free")),
    "schedule-free, beta 0": (naive.ScheduleFreePlain, solver("schedule-free", beta=0.0)),
    "schedule-free, decaying": (naive.ScheduleFreeDecaying, solver("schedule-free")),
    "compressed, top half": (naive.TopK, solver("compressed", share=0.5)),
    "compressed, sign": (naive.Sign, solver("compressed", kind="sign")),
    "asgd, clipped": (naive.ClippedByWorker, solver("asgd", clip=0.5)),
    "downpour, adagrad": (naive.Downpour, solver("downpour", ADAGRAD, n_push=2, n_fetch=3)),
    "downpour, delta": (naive.DownpourDelta, solver("downpour", n_push=3, n_fetch=2, push="delta")),
    "fedbuff": (naive.FedBuff, solver("fedbuff", steps=2, K=3, server_lr=0.8)),
    "async-diloco": (naive.AsyncDiLoCo, solver("async-diloco", steps=2)),
    "async-diloco, c": (naive.AsyncDiLoCoSpread, solver("async-diloco", steps=2, c=0.2)),
    "phased": (naive.Phased, solver("phased", epochs=16.0)),
    "asgd, introduced": (naive.Introduced, solver("asgd", introduce=20.0)),
}
REFERENCES["schedule-free, decaying"][1].schedule = lambda samples: 1 / (1 + samples / 5)
UPDATES = 60


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", REFERENCES)
def test_it_follows_its_formula_on_a_random_schedule(name, seed):
    """Parameters after every update, and who was applied or refused at which staleness."""
    reference, made = REFERENCES[name]
    W = 4 + seed % 2
    machines = cluster(W, compute=["lognormal(10ms,15ms)", "lognormal(40ms,20ms)@1"])
    out = simulate(TASK, made, machines, updates=UPDATES, keep=True, seed=seed)
    method = reference(np.ones(4), W, LR)
    expected = naive.play(method, durations(out, W), partial(gradient, seed=seed), UPDATES)
    assert len(expected) == UPDATES
    for n, (got, right) in enumerate(zip(out.xs, expected, strict=True)):
        np.testing.assert_allclose(got.numpy(), right, rtol=1e-10, atol=1e-12, err_msg=f"update {n}")
    assert [(r["worker"], r["staleness"]) for r in out.applied] == method.applied
    assert [(r["worker"], r["staleness"]) for r in out.rows if r["outcome"] == "refused"] == method.refused


def test_gap_aware_finds_its_momentum_where_the_segments_are_in_groups_of_their_own():
    """Two groups that differ in the decay of nothing are the same as one."""
    grouped, whole = (solver("gap-aware", sgd(momentum=0.9)) for _ in range(2))
    grouped.multipliers = {"*.bias": {"decay": 0.0}}
    found = [simulate(mlp_task(), s, cluster(3), updates=12, batch=8, keep=True) for s in (grouped, whole)]
    assert all(map(torch.equal, *(f.xs for f in found)))


def test_the_schedules_above_are_hard_enough():
    """There is staleness beyond the number of workers, so that no rule is at rest."""
    out = simulate(
        TASK, solver("asgd"), cluster(4, compute=["lognormal(10ms,15ms)", "lognormal(40ms,20ms)@1"]), updates=60
    )
    assert max(out.taus) > 6
    assert min(out.taus) == 0
    for name, (reference, made) in REFERENCES.items():
        if reference in (naive.KoloskovaDrops, naive.Ringmaster, naive.Backup, naive.Rennala):
            out = simulate(
                TASK, made, cluster(4, compute=["lognormal(10ms,15ms)", "lognormal(40ms,20ms)@1"]), updates=60
            )
            assert any(r["outcome"] == "refused" for r in out.rows), name


def test_ringmaster_with_stops_restarts_a_worker_as_soon_as_it_is_too_old():
    """Constant times: what a stopped gradient would have taken is known."""
    times = [0.0100, 0.0137, 0.0291, 0.0353, 0.1100]
    machines = cluster(5, compute=["1ms", *(f"{t}s@{i}" for i, t in enumerate(times))])
    out = simulate(TASK, solver("ringmaster", R=5, stops=True), machines, updates=UPDATES, keep=True)
    method = naive.RingmasterStops(np.ones(4), 5, LR)
    expected = naive.play(method, [[t] * 200 for t in times], gradient, UPDATES)
    np.testing.assert_allclose(torch.stack(out.xs).numpy(), np.stack(expected), rtol=1e-10, atol=1e-12)
    stopped = [(r["worker"], r["staleness"]) for r in out.rows if r["outcome"] == "cancelled"]
    assert {w for w, _ in stopped} == {2, 3, 4}
    assert {tau for _, tau in stopped} == {5}, "stopped as soon as it is too old, and never a fresh one"
    assert {w for w, _ in method.applied} == {0, 1, 2}
    assert not method.refused
    assert [(r["worker"], r["staleness"]) for r in out.applied] == method.applied


# -- identities, bit for bit -----------------------------------------------------------------------------------------


def both(one, other, *, workers=4, machines=None, updates=80):
    machines = machines or cluster(workers, compute="lognormal(10ms,15ms)")
    a = simulate(TASK, one, machines, updates=updates, keep=True)
    b = simulate(TASK, other, machines, updates=updates, keep=True)
    return torch.stack(a.xs), torch.stack(b.xs), a, b


BITWISE = {
    "B3: DC-ASGD with lambda 0 is ASGD": (solver("dc-asgd", lam=0.0), solver("asgd")),
    "B10: Ringmaster with a large R is ASGD": (solver("ringmaster", R=10**6), solver("asgd")),
    "B22: SSP with a large s is ASGD": (solver("ssp", s=10**6), solver("asgd")),
    "B24: no backups is sync": (solver("backup", backups=0), solver("sync")),
    "Downpour with n = 1 is ASGD": (solver("downpour"), solver("asgd")),
    "Downpour with Adagrad and n = 1 is ASGD with Adagrad": (solver("downpour", ADAGRAD), solver("asgd", ADAGRAD)),
    "softsync with n = W is staleness-aware": (solver("softsync", n=4), solver("staleness-aware")),
    "momentum of the worker is momentum per worker": (solver("worker-momentum"), solver("multi-asgd")),
    "one buffer of our own is torch's": (solver("async-momentum"), solver("asgd", sgd(momentum=0.9))),
    "phased without a first phase is ASGD": (solver("phased", epochs=0.0), solver("asgd")),
    "all of top-k is ASGD": (solver("compressed", share=1.0), solver("asgd")),
}


@pytest.mark.parametrize("name", BITWISE)
def test_identity(name):
    a, b, left, right = both(*BITWISE[name])
    assert torch.equal(a, b)
    assert left.taus == right.taus


def test_phased_without_an_end_is_sync():
    a, b, *_ = both(solver("phased", epochs=1e9), solver("sync"), updates=20)
    assert torch.equal(a, b)


@pytest.mark.parametrize("options", [{}, {"rule": "koloskova"}, {"rule": "koloskova", "smoothness": 9.0}])
def test_delay_adaptive_is_asgd_bit_for_bit_while_nobody_is_later_than_w_minus_1(options):
    a, b, left, _ = both(solver("delay-adaptive", **options), solver("asgd"), machines=cluster(4))
    assert max(left.taus) == 3
    assert torch.equal(a, b)
    a, b, _, right = both(solver("delay-adaptive", **options), solver("asgd"))
    assert max(right.taus) > 4
    assert not torch.equal(a, b)


def test_dc_with_lambda_differs_from_asgd_for_several_workers_and_not_for_one():
    """The defect that makes delay compensation a no-op is a snapshot that aliases the parameters."""
    for options in ({"lam": 0.04}, {"lam": 2.0, "adaptive": True}):
        a, b, *_ = both(solver("dc-asgd", **options), solver("asgd"))
        assert not torch.allclose(a[10:], b[10:], rtol=1e-6)
        a, b, *_ = both(solver("dc-asgd", **options), solver("asgd"), workers=1)
        assert torch.equal(a, b)


@pytest.mark.parametrize("seed", SEEDS)
def test_b4_the_exact_hessian_undoes_every_delay(seed):
    """g(x_read) + H (x - x_read) is the fresh gradient: the run is SGD without delay, for any schedule."""
    row = ParameterServer(sgd(), correct=lambda s, a: (a.gradient.value + TASK.h * (s.x - s.sent[a.worker].x), 1.0))
    out = simulate(TASK, row, cluster(5, compute="lognormal(10ms,15ms)"), updates=80, keep=True, seed=seed)
    x = np.ones(4)
    for got, r in zip(out.xs, out.applied, strict=True):
        x = x - LR * gradient(x, r["worker"], r["draw"], seed)
        np.testing.assert_allclose(got.numpy(), x, rtol=1e-10)
    assert max(out.taus) > 4


@pytest.mark.parametrize("seed", SEEDS)
def test_b9_what_dana_zero_sends_is_what_dana_slim_holds(seed):
    machines = cluster(5, compute="lognormal(10ms,15ms)")
    zero = simulate(TASK, solver("dana-zero"), machines, updates=80, seed=seed)
    slim = simulate(TASK, solver("dana-slim"), machines, updates=80, seed=seed)
    newest = max(zero.sim.server.sent.values(), key=lambda view: view.version)
    assert newest.version == 80
    torch.testing.assert_close(newest.x, slim.x, rtol=1e-12, atol=1e-14)
    assert zero.taus == slim.taus
    assert not torch.allclose(zero.x, slim.x)


def test_b10_ringmaster_accepts_below_r_and_nothing_else():
    for R in (1, 2, 5):
        out = simulate(Idle(), solver("ringmaster", R=R), cluster(8, compute="exponential(10ms)"), updates=2000)
        refused = [r["staleness"] for r in out.rows if r["outcome"] == "refused"]
        assert max(out.taus) == R - 1
        assert min(refused) == R


def test_b11_rennala_is_minibatch_sgd_with_the_fresh_gradients():
    out = simulate(TASK, solver("rennala", S=3), cluster(5, compute="lognormal(10ms,15ms)"), updates=40, keep=True)
    assert set(out.taus) == {0}
    x = np.ones(4)
    for n, got in enumerate(out.xs):
        rows = out.applied[3 * n : 3 * n + 3]
        x = x - LR * np.mean([gradient(x, r["worker"], r["draw"]) for r in rows], axis=0)
        np.testing.assert_allclose(got.numpy(), x, rtol=1e-11)


def test_b24_backup_steps_on_the_first_n_distinct_workers_and_drops_the_rest():
    W, b = 6, 2
    out = simulate(Idle(), solver("backup", backups=b), cluster(W, compute="exponential(10ms)"), updates=500)
    assert set(out.taus) == {0}
    for n in range(500):
        step = out.applied[(W - b) * n : (W - b) * (n + 1)]
        assert len({r["worker"] for r in step}) == W - b
        assert len({r["time"] for r in step}) == 1
    assert any(r["outcome"] == "refused" for r in out.rows)


@pytest.mark.parametrize("s", [0, 1, 4])
def test_b22_the_widest_gap_of_clocks_is_s_plus_1(s):
    out = simulate(Idle(), solver("ssp", s=s), cluster(5, compute=["exponential(10ms)", "60ms@2"]), updates=2000)
    clock, widest = [0] * 5, 0
    for r in out.applied:
        clock[r["worker"]] += 1
        widest = max(widest, max(clock) - min(clock))
    assert widest == s + 1


@pytest.mark.parametrize(("name", "options", "c"), [("softsync", {"n": 2}, 4), ("fedbuff", {"K": 5, "steps": 3}, 5)])
def test_b8_a_buffer_of_c_divides_the_mean_staleness_by_c(name, options, c):
    W = 8
    out = simulate(Idle(), solver(name, **options), cluster(W, compute="exponential(10ms)"), updates=1200)
    assert np.mean(out.taus) == pytest.approx((W - 1) / c, rel=0.04)


def test_b26_staleness_aware_with_equal_workers_is_the_delayed_recursion_at_eta_over_w_minus_1():
    W = 5
    out = simulate(Quadratic(1), solver("staleness-aware", sgd(0.4)), cluster(W), updates=60, keep=True)
    x = [1.0]
    for t in range(60):
        tau = min(t, W - 1)
        x.append(x[t] - 0.4 / max(1, tau) * x[t - tau])
    np.testing.assert_allclose([float(v) for v in out.xs], x[1:], rtol=1e-12)


def test_fedbuff_with_one_step_and_one_push_is_asgd_at_the_product_of_the_rates():
    a, b, left, right = both(
        solver("fedbuff", sgd(0.1), K=1, steps=1, server_lr=0.5, weight="none"), solver("asgd", sgd(0.05))
    )
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    assert left.taus == right.taus
    a, b, *_ = both(solver("fedbuff", sgd(0.1), K=1, steps=1, server_lr=0.5), solver("asgd", sgd(0.05)))
    assert not torch.allclose(a[-1], b[-1], rtol=1e-3), "with its weights it is another method"


def test_schedule_free_with_beta_0_is_asgd_whose_running_mean_is_evaluated():
    machines = cluster(4, compute="lognormal(10ms,15ms)")
    free = simulate(TASK, solver("schedule-free", beta=0.0), machines, updates=50, keep=True)
    plain = simulate(TASK, solver("asgd"), machines, updates=50, keep=True)
    assert torch.equal(free.sim.server.x, plain.x)
    means = torch.stack(plain.xs).cumsum(0) / torch.arange(1, 51)[:, None]
    torch.testing.assert_close(torch.stack(free.xs), means, rtol=1e-12, atol=1e-14)


# -- the one short cut ------------------------------------------------------------------------------------------------


EMPTY = {
    "asgd": solver("asgd"),
    "asgd, Adam": solver("asgd", partial(torch.optim.Adam, lr=LR)),
    "plain": solver("plain"),
    "schedule-free": solver("schedule-free"),
    "compressed": solver("compressed", share=0.5),
    "dana-slim": solver("dana-slim"),
    "downpour": solver("downpour", ADAGRAD, n_push=2, n_fetch=3),
    "downpour, delta": solver("downpour", n_push=3, n_fetch=2, push="delta"),
    "introduced": solver("asgd", introduce=20.0),
    "scheduled": solver("asgd"),
}
EMPTY["scheduled"].schedule = lambda samples: 1 / (1 + samples)


def saying(row, *, through):
    """The row, and the list of all that its server says; without the short cut if it is to go through the slots."""
    if through:
        row._past_the_slots = row._through_the_slots
    said, answer = [], row.on_call

    def on_call(s, worker, payload):
        effects = list(answer(s, worker, payload))
        said.extend(_plain(e) for e in effects)
        return effects

    row.on_call = on_call
    return row, said


def _plain(value):
    """Records as lists of their fields, tensors as lists of numbers: comparable with ==."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    names = getattr(value, "__struct_fields__", None)
    return value if names is None else [type(value).__name__, *(_plain(getattr(value, n)) for n in names)]


@pytest.mark.parametrize("name", EMPTY)
def test_past_empty_slots_the_server_says_what_it_says_through_them(name):
    found = []
    for through in (False, True):
        row, said = saying(copy(EMPTY[name]), through=through)
        W = 1 if name == "plain" else 4
        out = simulate(TASK, row, cluster(W, compute="lognormal(10ms,15ms)"), updates=60)
        found.append((said, _plain(out.x), row.save_server(out.sim.server)["samples"]))
    assert found[0] == found[1]
    assert sum(kind == "Stepped" for kind, *_ in found[0][0]) == 60


# -- a row of slots, as the docs have it ------------------------------------------------------------------------------


def of_the_page(name):
    """The class of this name in docs/adding.md."""
    page = Path(__file__).parent.parent / "docs" / "adding.md"
    (code,) = (
        c for c in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S) if f"class {name}(" in c
    )
    scope = {"__name__": name}
    exec(compile(code, "adding.md", "exec", dont_inherit=True), scope)
    return scope[name]


def test_the_slots_of_the_docs_do_what_they_say():
    out = simulate(
        TASK, of_the_page("Careful")(sgd(), oldest=6), cluster(8, compute="lognormal(10ms,15ms)"), updates=80, keep=True
    )
    points, m = [np.ones(4), *(x.numpy() for x in out.xs)], 0.0
    for n, r in enumerate(out.applied):
        m = 0.9 * m + 0.1 * r["staleness"]
        eta = LR * min(1.0, (1 + m) / (1 + r["staleness"]))
        g = gradient(points[r["version_read"]], r["worker"], r["draw"])
        np.testing.assert_allclose(points[n + 1], points[n] - eta * g, rtol=1e-10)
    assert max(out.taus) == 6
    assert min(r["staleness"] for r in out.rows if r["outcome"] == "refused") == 7


@pytest.mark.parametrize("check", CHECKS)
def test_the_slots_of_the_docs_keep_the_contract(check, monkeypatch):
    monkeypatch.setitem(sys.modules, "careful", SimpleNamespace(Careful=of_the_page("Careful")))
    CHECKS[check](Case("careful:Careful", {"oldest": 4}, workers=4))


# -- what is saved ----------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_other_fields_is_refused_with_the_reason():
    """As of 0.2.0, which kept what slots need in dictionaries."""
    row = solver("async-momentum")
    world = World(2, Layout.of([("x", (4,))]), (0, 1))
    x0 = torch.ones(4, dtype=torch.float64)
    saved = row.save_server(row.init_server(x0, world))
    assert row.load_server(saved, x0, world).v is None
    old = {**{k: v for k, v in saved.items() if k != "v"}, "memory": {"v": x0}}
    with pytest.raises(StoreError, match="another version of offbeat: its MomentumServer differs in memory, v"):
        row.load_server(old, x0, world)
    codec = Codec(row.records)
    worker = codec.encode(row.init_worker(0, x0, world), {})
    worker["fields"]["memory"] = None
    with pytest.raises(StoreError, match="another version of offbeat: its Worker differs in memory"):
        codec.decode(worker, {})


# -- B18, B19: compression and delayed Nesterov, on the rules themselves --------------------------------------------


@pytest.mark.parametrize("options", [{"share": 0.25}, {"kind": "sign"}])
def test_b18_with_error_feedback_nothing_is_lost(options):
    """One worker: x_t - eta e_t = x_0 - eta sum g."""
    out = simulate(TASK, solver("compressed", **options), cluster(), updates=50, keep=True)
    x, total = np.ones(4), np.zeros(4)
    for k, got in enumerate(out.xs):
        total = total + gradient(x, 0, k)
        x = got.numpy()
    e = out.sim.workers[0].state.e.numpy()
    np.testing.assert_allclose(out.x.numpy() - LR * e, 1 - LR * total, rtol=1e-11)
    assert np.abs(e).max() > 0.01


def test_b18_top_k_contracts_and_sends_only_k():
    rng = np.random.default_rng(0)
    for d, k in ((10, 1), (10, 3), (40, 10)):
        p = torch.from_numpy(rng.standard_normal(d))
        q = compress(p, "topk", k / d)
        assert int((q != 0).sum()) == k
        assert ((p - q) ** 2).sum() <= (1 - k / d) * (p**2).sum()
        s = compress(p, "sign", 1.0)
        assert s.abs().sum() == pytest.approx(float(p.abs().sum()))


@pytest.mark.parametrize("N", [1, 3, 4])
def test_b19_n_pushes_are_one_nesterov_step_with_their_mean(N):
    made = solver("async-diloco", N=N)
    x0 = torch.ones(3, dtype=torch.float64)
    s = made.init_server(x0, World(3, Layout.of([("x", (3,))]), (0, 1, 2)))
    p = x0.clone().requires_grad_(True)
    nesterov = torch.optim.SGD([p], lr=0.7, momentum=0.9, nesterov=True)
    rng = torch.Generator().manual_seed(0)
    for _ in range(5):
        pushes = [torch.randn(3, generator=rng, dtype=torch.float64) for _ in range(N)]
        for D in pushes:
            g = Gradient(D, 0.0, 1)
            g.version = s.version
            replies = [e for e in made.on_call(s, 1, g) if isinstance(e, Reply)]
            assert isinstance(replies[0].value, View)
        p.grad = sum(pushes) / N
        nesterov.step()
        torch.testing.assert_close(s.x, p.detach(), rtol=1e-12, atol=1e-14)


def test_dylu_gives_slow_workers_fewer_steps():
    made = solver("async-diloco", steps=8, speeds=[1.0, 0.5, 0.3, 0.01])
    out = simulate(Idle(), made, cluster(4), updates=200)
    pushes = {}
    for r in out.applied:
        pushes.setdefault((r["worker"], r["time"]), []).append(r)
    for i, steps in enumerate([8, 4, 2, 1]):
        assert {len(rows) for (w, _), rows in pushes.items() if w == i} == {steps}


# -- B20, B21: statistics --------------------------------------------------------------------------------------------


def test_b20_asynchrony_begets_momentum():
    """E[x_{t+1} - x_t] = (1 - 1/W) E[x_t - x_{t-1}] - (eta / W) h E[x_t], for exponential workers. 400 runs."""
    W, T, lr = 3, 8, 0.6
    runs = []
    for seed in range(400):
        out = simulate(
            Quadratic(1),
            solver("asgd", sgd(lr)),
            cluster(W, compute="exponential(1s)"),
            updates=T,
            keep=True,
            seed=seed,
        )
        runs.append([1.0] + [float(x) for x in out.xs])
    x = np.array(runs)
    step, before = x[:, 2:] - x[:, 1:-1], x[:, 1:-1] - x[:, :-2]

    def deviation(mu, share=1 / W):
        r = (step - mu * before + lr * share * x[:, 1:-1]).mean(axis=1)
        return abs(r.mean()) / (r.std() / math.sqrt(len(r)))

    assert deviation(1 - 1 / W) < 4
    assert deviation(1 - 1 / (W + 1)) > 4
    assert deviation(1 - 1 / (W - 1)) > 4
    assert deviation(1 - 1 / W, share=1 / (W + 1)) > 4


@pytest.mark.parametrize(("workers", "a"), [(1, 0.3), (2, 0.3), (2, 0.7), (3, 0.3)])
def test_b21_the_stationary_variance_under_noise(workers, a):
    """Unit step noise: 1 / (a (2 - a)) fresh, (1 + a) / (a (2 + a) (1 - a)) one update late; else from Lyapunov."""
    d, sigma = 400, 0.1
    task = Quadratic(d, condition=1.0, noise=sigma)
    out = simulate(task, solver("asgd", sgd(a)), cluster(workers), updates=700, keep=True)
    variance = float((torch.stack(out.xs[200:]) ** 2).mean()) / (a * sigma) ** 2
    tau = workers - 1
    companion = np.eye(tau + 1, k=-1)
    companion[0, 0] = 1
    companion[0, tau] -= a
    noise = np.zeros((tau + 1, tau + 1))
    noise[0, 0] = 1
    P = np.zeros_like(noise)
    for _ in range(3000):
        P = companion @ P @ companion.T + noise
    closed = {0: 1 / (a * (2 - a)), 1: (1 + a) / (a * (2 + a) * (1 - a))}.get(tau, P[0, 0])
    assert P[0, 0] == pytest.approx(closed, rel=1e-9)
    assert variance == pytest.approx(closed, rel=0.03)


# -- B27: workers with different data --------------------------------------------------------------------------------


class Apart:
    """Worker i's data want x = c_i, with curvature 1 and no noise."""

    name, size, nbytes = "apart", None, 8
    layout = Layout.of([("x", (1,))])

    def __init__(self, minimisers, draws=4000):
        self.of = {key64(0, "model", i, k): c for i, c in enumerate(minimisers) for k in range(draws)}

    def init(self, seed):
        return Point(torch.zeros(1, dtype=torch.float64))

    def gradient(self, point, batch, key):
        return Gradient(point.x - self.of[key], 0.0, 1)


SPEEDS, WANTED = [0.010, 0.020, 0.040], [0.0, 1.0, 4.0]


def fixed_point(name, **options):
    compute = ["1ms", *(f"{t}s@{i}" for i, t in enumerate(SPEEDS))]
    out = simulate(
        Apart(WANTED), solver(name, sgd(0.006), **options), cluster(3, compute=compute), updates=1500, keep=True
    )
    return float(torch.stack(out.xs[-280:]).mean()), out


def test_b27_asgd_ends_at_the_optimum_weighted_by_throughput_and_fair_methods_at_the_mean():
    rates = [1 / t for t in SPEEDS]
    weighted = sum(r * c for r, c in zip(rates, WANTED, strict=True)) / sum(rates)
    uniform = sum(WANTED) / 3
    assert abs(weighted - uniform) > 0.5
    assert fixed_point("asgd")[0] == pytest.approx(weighted, abs=0.02)
    assert fixed_point("sync")[0] == pytest.approx(uniform, abs=0.02)
    found, out = fixed_point("ringleader")
    assert found == pytest.approx(uniform, abs=0.02)
    assert max(out.taus) <= 2 * 3 - 2


@pytest.mark.parametrize("n", [2, 3, 4])
def test_b27_ringleader_is_never_later_than_2n_minus_2(n):
    taus = []
    for seed in range(4):
        taus += simulate(
            Idle(), solver("ringleader"), cluster(n, compute="exponential(1s)"), updates=300, seed=seed
        ).taus
    assert max(taus) == 2 * n - 2


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["dana-zero", "dana-slim", "async-momentum", "multi-asgd", "worker-momentum", "compressed"]
)
@pytest.mark.parametrize("opt", [sgd(momentum=0.9), partial(torch.optim.Adam, lr=0.1)])
def test_momentum_or_adam_on_the_server_is_refused_with_the_reason(name, opt):
    with pytest.raises(ConfigError, match=r"takes plain SGD as its optimizer, got (SGD with momentum|Adam): "):
        solver(name, opt)


def test_wrong_hyper_parameters_are_refused_by_name():
    for name, options, words in [
        ("fedbuff", {"K": 0}, "solver.K must be a whole number from 1, got 0"),
        ("downpour", {"push": "both"}, "unknown solver.push 'both'; known: delta, gradient"),
        ("downpour", {"fetch": 1}, "known: clip, clip_at, introduce, local_lr, n_fetch, n_push, overlap, push"),
        ("ringmaster", {"stops": "yes"}, "solver.stops must be true or false, got 'yes'"),
        ("async-diloco", {"momentum": 1.0}, "solver.momentum must be a finite number from 0 and below 1, got 1.0"),
    ]:
        with pytest.raises(ConfigError, match=words):
            solver(name, **options)
    with pytest.raises(ConfigError, match="one for each of the 2 workers"):
        simulate(TASK, solver("async-diloco", speeds=[1.0]), cluster(2), updates=1)


def test_the_barrier_of_the_docs_steps_with_two_and_answers_both():
    out = simulate(TASK, of_the_page("Pairs")(sgd()), cluster(3, compute="lognormal(10ms,15ms)"), updates=20, keep=True)
    steps = [r["version_applied"] for r in out.applied]
    assert [steps.count(n) for n in range(20)] == [2] * 20
    for worker in range(3):
        started = [r for r in out.applied if r["worker"] == worker]
        for before, after in pairwise(started):  # it began its next gradient when its last one had been used
            assert after["version_read"] == before["version_applied"] + 1
