"""Everything that changes over the work clock, against its formula: learning rate, batch, optimizer, workers."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import offbeat
from harness import Mlp, cluster, mlp_task, points, simulate
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed, growing
from offbeat.core.layout import Layout
from offbeat.core.solver import World
from offbeat.lab.config import make as parse
from offbeat.lab.runs.plan import build as build_plan
from offbeat.optim.layerwise import LAMB, LARS
from offbeat.optim.schedules import Schedule
from offbeat.optim.steppers import TorchStepper, TwoStage, start
from offbeat.solvers import build
from offbeat.tasks.quadratic import Quadratic

SGD = partial(torch.optim.SGD, lr=0.1)


# -- learning rate ---------------------------------------------------------------------------------------------------

FORMULAS = {
    "polynomial": (Schedule("polynomial", total=100.0, power=0.5), lambda t: math.sqrt(max(0.0, 1 - t / 100))),
    "multistep": (Schedule("multistep", milestones=(30.0, 60.0), gamma=0.1), lambda t: 0.1 ** ((t > 30) + (t > 60))),
    "exponential": (Schedule("exponential", unit=50.0, gamma=0.5), lambda t: 0.5 ** (t / 50)),
    "cosine": (
        Schedule("cosine", total=100.0, floor=0.1),
        lambda t: 0.1 + 0.45 * (1 + math.cos(math.pi * min(1, t / 100))),
    ),
    "warm-up": (Schedule("constant", warmup=40.0), lambda t: min(1.0, t / 40)),
    "warm-up and polynomial": (
        Schedule("polynomial", total=100.0, warmup=20.0),
        lambda t: min(1, t / 20) * max(0, 1 - t / 100),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_schedule_is_its_formula(name):
    schedule, formula = FORMULAS[name]
    for t in (0, 1, 19, 20, 30, 31, 50, 99, 100, 150):
        assert schedule(t) == pytest.approx(formula(t), abs=1e-12)


@pytest.mark.parametrize(("solver", "per_step"), [("asgd", 1), ("sync", 4)])
def test_the_clock_of_a_schedule_is_samples_and_not_updates(solver, per_step):
    """x^2 / 2 without noise: each step's rate can be read off it; equal workers, staleness known."""
    made = build(solver, SGD, {})
    made.schedule = Schedule("polynomial", total=100.0)
    out = simulate(Quadratic(1), made, cluster(4), updates=20, keep=True)
    x = [1.0] + [float(v) for v in out.xs]
    for t in range(20):
        read = x[t] if solver == "sync" else x[max(0, t - 3)]
        assert (x[t] - x[t + 1]) / read == pytest.approx(0.1 * (1 - per_step * (t + 1) / 100), rel=1e-9)


# -- workers -----------------------------------------------------------------------------------------------------------


def test_lr_and_batch_are_halved_when_the_workers_double():
    for workers, lr, batch in ((1, 0.08, 64), (2, 0.04, 32), (4, 0.02, 16), (8, 0.01, 8)):
        config = parse(
            {
                "task": {"name": "quadratic"},
                "optimizer": {"lr": 0.08},
                "data": {"batch": 64},
                "budget": {"updates": 5},
                "cluster": {"workers": workers},
                "scale": {"lr": "inverse", "batch": "inverse"},
            }
        )
        plan = build_plan(config)
        assert plan.batch == batch
        server = plan.solver.init_server(plan.task.init(0).x, World(workers, plan.task.layout, (0,)))
        assert plan.solver.lr(server, 0) == pytest.approx(lr)


def test_workers_are_introduced_one_after_another():
    """Worker i begins when 40 i / 4 samples are done: nobody but worker 0 before."""
    out = simulate(Quadratic(2), build("asgd", SGD, {"introduce": 40.0}), cluster(4), updates=80)
    first = {i: next(n for n, r in enumerate(out.applied) if r["worker"] == i) for i in range(4)}
    assert first[0] == 0
    for i in (1, 2, 3):
        assert 10 * i <= first[i] <= 10 * i + 2 * i + 1
    assert set(out.taus[:10]) == {0}


# -- batch -------------------------------------------------------------------------------------------------------------


def test_a_growing_batch_follows_the_line_and_loses_no_sample():
    draws = growing(4, 32, 200.0)
    for begins, length in draws:
        assert length == min(32, round(4 + 28 * begins / 200))
    assert [a + n for a, n in draws[:-1]] == [a for a, _ in draws[1:]]
    assert growing(32, 32, 200.0) == [] == growing(4, 32, 0.0)


@pytest.mark.parametrize("interleaved", [False, True])
def test_every_sample_comes_once_a_pass_while_the_batch_grows(interleaved):
    feed = Feed(500, batch=20, workers=2, seed=3, interleaved=interleaved, first_batch=2, growth=300.0)
    seen, k = [], 0
    while sum(map(len, seen)) < 500:
        seen.append(feed.indices(0, k))
        k += 1
    assert sorted(np.concatenate(seen)[:500]) == list(range(500))
    lengths = [len(s) for s in seen]
    assert lengths[0] == 2
    assert lengths == sorted(lengths)
    full = next(n for n, length in enumerate(lengths) if length == 20)
    assert sum(lengths[:full]) == pytest.approx(300 if interleaved else 150, abs=20)


def test_batch_warm_up_is_a_setting_and_needs_a_dataset(tmp_path):
    values = {
        "task": {"name": "digits"},
        "data": {"batch": 32, "first_batch": 4, "batch_warmup": "1epochs"},
        "budget": {"samples": 300},
    }
    plan = build_plan(parse(values))
    assert len(plan.feed().indices(0, 0)) == 4
    assert len(plan.feed().indices(0, 10_000)) == 32
    with pytest.raises(ConfigError, match="needs a dataset"):
        build_plan(parse({**values, "task": {"name": "quadratic"}}))
    with pytest.raises(ConfigError, match="together"):
        parse({**values, "data": {"first_batch": 4}})


# -- optimizers --------------------------------------------------------------------------------------------------------

SHAPES = [("a.weight", (3, 2)), ("a.bias", (3,)), ("b.weight", (2, 3))]
LAYOUT = Layout.of(SHAPES)


def gradients(count):
    rng = np.random.default_rng(5)
    return rng.standard_normal((count, LAYOUT.size))


def lars(x, gs, lr, mu, wd, trust):
    """Algorithm 1 of You et al. 2017, one layer at a time."""
    v = np.zeros_like(x)
    for g in gs:
        for s in LAYOUT.segments:
            at = slice(s.start, s.stop)
            matrix = len(s.shape) > 1
            w, decay = x[at], wd if matrix else 0.0
            scale = trust * np.linalg.norm(w) / (np.linalg.norm(g[at]) + decay * np.linalg.norm(w)) if matrix else 1.0
            v[at] = mu * v[at] + lr * scale * (g[at] + decay * w)
            x = x.copy()
            x[at] = w - v[at]
    return x


def lamb(x, gs, lr, wd):
    """Algorithm 2 of You et al. 2020."""
    m = s2 = np.zeros_like(x)
    for t, g in enumerate(gs, 1):
        m, s2 = 0.9 * m + 0.1 * g, 0.999 * s2 + 0.001 * g**2
        r = (m / (1 - 0.9**t)) / (np.sqrt(s2 / (1 - 0.999**t)) + 1e-6) + wd * x
        step = np.empty_like(x)
        for s in LAYOUT.segments:
            at = slice(s.start, s.stop)
            ratio = np.linalg.norm(x[at]) / np.linalg.norm(r[at]) if len(s.shape) > 1 else 1.0
            step[at] = lr * ratio * r[at]
        x = x - step
    return x


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_layerwise_optimizers_are_their_algorithms(name):
    x0, gs = np.linspace(-1, 1, LAYOUT.size), gradients(12)
    if name == "lars":
        factory, expected = partial(LARS, lr=0.5, momentum=0.9, weight_decay=0.01), lars(x0, gs, 0.5, 0.9, 0.01, 0.001)
    else:
        factory, expected = partial(LAMB, lr=0.05, weight_decay=0.01), lamb(x0, gs, 0.05, 0.01)
    stepper = TorchStepper(factory, torch.from_numpy(x0), LAYOUT)
    for g in gs:
        x = stepper.step(torch.from_numpy(g))
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_multipliers_scale_learning_rate_and_decay_by_segment():
    x0, gs = torch.linspace(-1, 1, LAYOUT.size, dtype=torch.float64), torch.from_numpy(gradients(6))
    factory = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)
    multipliers = {"*.bias": {"lr": 2.0, "decay": 0.0}, "b.*": {"lr": 0.5}}
    stepper = start(factory, x0, LAYOUT, multipliers)
    for g in gs:
        x = stepper.step(g)
    for s, (lr, decay) in zip(LAYOUT.segments, [(0.1, 0.01), (0.2, 0.0), (0.05, 0.01)], strict=True):
        p = x0[s.start : s.stop].clone().requires_grad_(True)
        alone = torch.optim.SGD([p], lr=lr, momentum=0.9, weight_decay=decay)
        for g in gs:
            p.grad = g[s.start : s.stop].clone()
            alone.step()
        assert torch.equal(x[s.start : s.stop], p.detach()), s.name


def test_two_stages_are_gradient_descent_and_then_adam_with_fresh_moments():
    """The first stage lasts while at most 5 samples, this step's included, are done."""
    x0, gs = torch.linspace(-1, 1, 4, dtype=torch.float64), torch.from_numpy(gradients(12)[:, :4].copy())
    layout = Layout.of([("x", (4,))])
    plan = TwoStage(partial(torch.optim.SGD, lr=0.3), partial(torch.optim.Adam, lr=0.05), 5.0)
    stepper = start(plan, x0, layout)
    for n, g in enumerate(gs, 1):
        x = stepper.step(g, 1.0, float(n))
    expected = x0.clone()
    for g in gs[:5]:
        expected = expected.add(g, alpha=-0.3)
    p = expected.clone().requires_grad_(True)
    adam = torch.optim.Adam([p], lr=0.05)
    for g in gs[5:]:
        p.grad = g.clone()
        adam.step()
    assert torch.equal(x, p.detach())


@pytest.mark.parametrize(
    "name",
    sorted(["sgd", "adam", "adamw", "adagrad", "rmsprop", "nadam", "radam", "adamax", "adadelta", "asgd", "rprop"]),
)
def test_an_elementwise_optimizer_has_the_same_bits_on_the_flat_vector(name):
    from offbeat.optim.steppers import ELEMENTWISE, OPTIMIZERS

    kind = OPTIMIZERS[name]
    assert kind.__name__ in ELEMENTWISE
    x0, gs = torch.linspace(-1, 1, LAYOUT.size), torch.from_numpy(gradients(8)).float()
    stepper = TorchStepper(partial(kind, lr=0.01), x0, LAYOUT)
    parts = [p.clone().requires_grad_(True) for p in LAYOUT.views(x0)]
    alone = kind(parts, lr=0.01)
    for g in gs:
        x = stepper.step(g)
        for p, each in zip(parts, LAYOUT.views(g), strict=True):
            p.grad = each.clone()
        alone.step()
    assert torch.equal(x, LAYOUT.flatten([p.detach() for p in parts]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.3},
        {"momentum": 0.7, "nesterov": True, "weight_decay": 0.1},
    ],
    ids=lambda o: ",".join(o) or "plain",
)
def test_sgd_written_out_has_torchs_bits_also_after_a_restart(options):
    from offbeat.optim.flat_sgd import FlatSGD

    x0, gs = torch.linspace(-1, 1, LAYOUT.size), torch.from_numpy(gradients(8)).float()
    factory = partial(torch.optim.SGD, lr=0.03, **options)
    short, long = start(factory, x0, LAYOUT), TorchStepper(factory, x0, LAYOUT)
    assert isinstance(short, FlatSGD)
    seen, given = [], gs.clone()
    for k, g in enumerate(gs):
        seen.append((x := short.step(g, 1 / (1 + k)), x.clone()))
        assert torch.equal(x, long.step(g, 1 / (1 + k)))
    assert all(torch.equal(x, then) for x, then in seen)  # what was published stays,
    assert torch.equal(gs, given)  # and so does what was given
    assert all(map(torch.equal, short.moments(), long.moments()))
    for saved in (long.state(), short.state()):
        kept = copy.deepcopy(saved)
        again = start(partial(factory, lr=0.5), x0, LAYOUT)
        once = TorchStepper(factory, x0, LAYOUT)
        for each in (again, once):
            each.load(saved)
        for g in gs[:3]:
            assert torch.equal(again.step(g), once.step(g))
        assert torch.equal(again.step_from(x0, gs[3]), once.step_from(x0, gs[3]))
        assert all(map(torch.equal, tensors_of(kept), tensors_of(saved)))  # loading took copies


def tensors_of(saved):
    return [saved["master"], *(b for s in saved["state"].values() for b in s.values() if isinstance(b, torch.Tensor))]


def test_a_saved_state_is_not_touched_by_later_steps():
    x0, gs = torch.linspace(-1, 1, LAYOUT.size), torch.from_numpy(gradients(4)).float()
    stepper = start(partial(torch.optim.SGD, lr=0.03, momentum=0.9), x0, LAYOUT)
    stepper.step(gs[0])
    saved = stepper.state()
    kept = copy.deepcopy(saved)
    stepper.step(gs[1])
    assert all(map(torch.equal, tensors_of(saved), tensors_of(kept)))


def test_an_optimizer_tells_its_options_pairs_of_numbers_too():
    """Whoever asks why a run diverged tells an adaptive optimizer by its betas."""
    adam = start(partial(torch.optim.Adam, lr=0.1, betas=(0.8, 0.9)), torch.zeros(3), Layout.of([("x", (3,))]))
    assert (adam.options["lr"], adam.options["betas"]) == (0.1, (0.8, 0.9))
    assert "params" not in adam.options


def test_options_may_change_between_steps():
    x0, gs = torch.linspace(-1, 1, LAYOUT.size), torch.from_numpy(gradients(6)).float()
    factory = partial(torch.optim.SGD, lr=0.03, momentum=0.9)
    short, long = start(factory, x0, LAYOUT), TorchStepper(factory, x0, LAYOUT)
    for g, options in zip(
        gs, [{}, {"lr": 0.1}, {"momentum": 0.5}, {"weight_decay": 0.2}, {"momentum": 0.0}, {}], strict=True
    ):
        for stepper in (short, long):
            stepper.torch.param_groups[0].update(options)
        assert torch.equal(short.step(g), long.step(g))


def test_other_optimizers_and_options_are_left_to_torch():
    x0, factory = torch.zeros(LAYOUT.size), partial(torch.optim.SGD, lr=0.03)

    def hooked(params):
        made = factory(params)
        made.register_step_post_hook(lambda *_: None)
        return made

    for extra in ("maximize", "foreach", "fused", "differentiable"):
        assert isinstance(start(partial(factory, **{extra: True}), x0, LAYOUT), TorchStepper)
    for other in (torch.optim.Adam, hooked):
        assert isinstance(start(other, x0, LAYOUT), TorchStepper)
    assert isinstance(start(factory, x0, LAYOUT, {"*": {"lr": 2.0}}), TorchStepper)


# -- clipping ----------------------------------------------------------------------------------------------------------


def test_clipping_on_the_worker_bounds_each_gradient_and_on_the_server_their_mean():
    task = Quadratic(3, noise=2.0)
    for where in ("worker", "server"):
        out = simulate(task, build("sync", SGD, {"clip": 0.5, "clip_at": where}), cluster(3), updates=30, keep=True)
        steps = torch.stack([torch.ones(3, dtype=torch.float64), *out.xs]).diff(dim=0).norm(dim=1) / 0.1
        assert steps.max() <= 0.5 + 1e-12
        # A mean of bounded gradients is shorter than the bound; a bounded mean of long ones reaches it.
        assert (steps.max() > 0.5 - 1e-9) == (where == "server")


def test_clipping_is_torchs():
    train = points(64)
    task = mlp_task(train=train)
    torch.manual_seed(0)
    model = Mlp()
    F.cross_entropy(model(train[0]), train[1]).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    expected = torch.cat([(p - 0.1 * p.grad).detach().reshape(-1) for p in model.parameters()])
    run = offbeat.train(task, build("asgd", SGD, {"clip": 0.05}), 1, budget="1updates", batch=64, out=False)
    torch.testing.assert_close(run.params, expected, rtol=1e-5, atol=1e-7)


def test_options_of_which_an_optimizer_makes_too_large_a_number_are_one_line():
    x = torch.zeros(3)
    stepper = TorchStepper(partial(torch.optim.ASGD, lr=1.0, lambd=1e4, alpha=1e3), x, Layout.of([("x", (3,))]))
    with pytest.raises(ConfigError, match=r"^optimizer ASGD .*alpha=1000.0.*out of range$"):
        stepper.step(torch.ones(3))
