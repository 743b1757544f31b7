"""Delayed against loops that index into the list of all gradients so far: no queue, no wrapper."""

import copy
import io
import json
import pickle
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from offbeat.core.errors import ConfigError
from offbeat.core.stability import momentum_limit, nesterov_limit, sgd_limit
from offbeat.optim.delayed import Delayed, shift

Factory = Callable[[Iterable[Any]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Factory] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "foreach": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True, maximize=True, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}
each_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def make_model() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    rng = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=rng) / 2)
    return model


def loss_at(model: nn.Module, t: int) -> Tensor:
    """The loss on batch t; every fifth batch leaves the first layer without gradient (None)."""
    rng = torch.Generator().manual_seed(1000 + t)
    x, y = torch.randn(5, 3, generator=rng), torch.randn(5, 2, generator=rng)
    if t % 5 == 3:
        return ((model[2](torch.ones(5, 4)) - y) ** 2).mean()  # type: ignore[index]
    return ((model(x) - y) ** 2).mean()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b)  # bitwise up to the sign of zero


def run(model: nn.Module, optimizer: torch.optim.Optimizer, steps: Iterable[int]) -> list[Tensor]:
    """The loop of a user: parameters after every step."""
    path = []
    for t in steps:
        optimizer.zero_grad()
        loss_at(model, t).backward()
        optimizer.step()
        path.append(flat(model))
    return path


def oracle(factory: Factory, delay: int, filling: str, num_steps: int) -> list[Tensor]:
    """Step t uses gradients[t - delay]; while t < delay, nothing or gradients[t]."""
    model = make_model()
    params = list(model.parameters())
    optimizer = factory(params)
    gradients: list[list[Tensor | None]] = []
    path = []
    for t in range(num_steps):
        gradients.append(list(torch.autograd.grad(loss_at(model, t), params, allow_unused=True)))
        used = gradients[t - delay] if t >= delay else gradients[t] if filling == "immediate" else None
        if used is not None:
            for p, g in zip(params, used, strict=True):
                p.grad = None if g is None else g.clone()
            optimizer.step()
        path.append(flat(model))
    return path


def assert_paths(got: list[Tensor], expected: list[Tensor]) -> None:
    assert len(got) == len(expected)
    for t, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert same(a, b), f"step {t}: {(a - b).abs().max()}"


# the queue


@pytest.mark.parametrize("delay", [0, 1, 2, 7])
def test_shift_pops_the_item_of_delay_pushes_ago(delay: int) -> None:
    queue: tuple[int, ...] = ()
    for t in range(20):
        before = queue
        out, queue = shift(queue, t, delay)
        assert out == (t - delay if t >= delay else None)
        assert queue == tuple(range(max(0, t + 1 - delay), t + 1))
        assert before == tuple(range(max(0, t - delay), t))  # a value: what a checkpoint holds stays


# the rule


@each_optimizer
@pytest.mark.parametrize("filling", ["wait", "immediate"])
@pytest.mark.parametrize("delay", [0, 1, 2, 5])
def test_same_bits_as_indexing_the_list_of_gradients(name: str, filling: str, delay: int) -> None:
    model = make_model()
    optimizer = Delayed(OPTIMIZERS[name](model.parameters()), delay, filling)
    path = run(model, optimizer, range(16))
    assert_paths(path, oracle(OPTIMIZERS[name], delay, filling, 16))
    assert not same(path[delay], path[-1])


@each_optimizer
@pytest.mark.parametrize("filling", ["wait", "immediate"])
def test_no_delay_is_the_bare_optimizer(name: str, filling: str) -> None:
    bare_model, model = make_model(), make_model()
    bare, wrapped = OPTIMIZERS[name](bare_model.parameters()), OPTIMIZERS[name](model.parameters())
    optimizer = Delayed(wrapped, 0, filling)
    assert_paths(run(model, optimizer, range(12)), run(bare_model, bare, range(12)))
    state = optimizer.state_dict()
    assert state.pop("delayed") == {"delay": 0, "filling": filling, "queue": []}
    tree, tensors = to_json(state)
    bare_tree, bare_tensors = to_json(bare.state_dict())
    assert tree == bare_tree
    assert all(same(tensors[k], bare_tensors[k]) for k in bare_tensors)


@pytest.mark.parametrize("delay", [1, 4])
@pytest.mark.parametrize("name", ["decay", "momentum", "adam"])
def test_is_asgd_with_equal_times_d_steps_late(name: str, delay: int) -> None:
    """B29: worker k mod W brings batch k, computed where it last pulled; W = d + 1."""
    model, num_workers, num_steps = make_model(), delay + 1, 14
    params = list(model.parameters())
    server = OPTIMIZERS[name](params)
    pulled = [[p.detach().clone() for p in params] for _ in range(num_workers)]
    asgd = [flat(model)]
    for k in range(num_steps):
        w = k % num_workers
        at_worker = make_model()
        with torch.no_grad():
            for p, value in zip(at_worker.parameters(), pulled[w], strict=True):
                p.copy_(value)
        loss_at(at_worker, k).backward()
        for p, q in zip(params, at_worker.parameters(), strict=True):
            p.grad = q.grad
        server.step()
        pulled[w] = [p.detach().clone() for p in params]
        asgd.append(flat(model))

    model = make_model()
    path = run(model, Delayed(OPTIMIZERS[name](model.parameters()), delay), range(num_steps + delay))
    assert_paths(path[delay:], asgd[1:])
    assert all(same(x, asgd[0]) for x in path[:delay])


def test_waiting_does_nothing_at_all() -> None:
    """Neither weight decay nor momentum nor Adam's step count moves before the first gradient is due."""
    model = make_model()
    optimizer = Delayed(torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5), delay=3)
    start = flat(model)
    run(model, optimizer, range(3))
    assert same(flat(model), start)
    assert len(optimizer.state) == 0
    run(model, optimizer, range(3, 5))
    assert {float(s["step"]) for s in optimizer.state.values()} == {2.0}


def test_immediate_applies_the_first_gradients_twice() -> None:
    p = torch.zeros(1, requires_grad=True)
    optimizer = Delayed(torch.optim.SGD([p], lr=1.0), delay=2, filling="immediate")
    seen = []
    for g in (1.0, 10.0, 100.0, 1000.0):
        p.grad = torch.tensor([g])
        optimizer.step()
        seen.append(-p.item())
    assert seen == [1.0, 1.0 + 10.0, 1.0 + 10.0 + 1.0, 1.0 + 10.0 + 1.0 + 10.0]


@pytest.mark.parametrize(
    ("filling", "expected"),
    [
        ("wait", [0.0, 1.0, 1.0, 5.5]),  # applied: nothing, 1, None (skipped: v stays 1), 4 (v = 0.5 + 4)
        ("immediate", [1.0, 2.5, 2.5, 7.25]),  # applied: 1, 1 (v = 1.5), None, 4 (v = 0.75 + 4)
    ],
)
def test_a_step_without_any_gradient_keeps_its_place_in_the_queue(filling: str, expected: list[float]) -> None:
    p = torch.zeros(1, requires_grad=True)
    inner = torch.optim.SGD([p], lr=1.0, momentum=0.5)
    updates: list[int] = []
    inner.register_step_post_hook(lambda *_: updates.append(len(seen)))
    optimizer = Delayed(inner, 1, filling)
    seen: list[float] = []
    for g in (1.0, None, 4.0, 16.0):
        p.grad = None if g is None else torch.tensor([g])
        optimizer.step()
        seen.append(-p.item())
    assert seen == expected
    assert updates == ([1, 2, 3] if filling == "wait" else [0, 1, 2, 3])  # an empty step is still an update


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        (sgd_limit, {}),
        (lambda tau: momentum_limit(tau, 0.9), {"momentum": 0.9}),
        (lambda tau: nesterov_limit(tau, 0.9), {"momentum": 0.9, "nesterov": True}),
    ],
    ids=["sgd", "heavy-ball", "nesterov"],
)
@pytest.mark.parametrize("delay", [1, 3])
def test_diverges_where_the_closed_form_says(
    limit: Callable[[int], float], options: dict[str, Any], delay: int
) -> None:
    """A1, A3 with torch's own momentum: shrinks 5% below the limit on h x²/2, grows 5% above."""
    h = 2.0
    for factor, grows in ((0.95, False), (1.05, True)):
        x = torch.ones(1, dtype=torch.float64, requires_grad=True)
        optimizer = Delayed(torch.optim.SGD([x], lr=factor * limit(delay) / h, **options), delay)
        size = []
        for _ in range(1500):
            x.grad = h * x.detach()
            optimizer.step()
            size.append(abs(x.item()))
        early, late = max(size[500:750]), max(size[1250:1500])
        assert (late > 2 * early) if grows else (late < early / 2)


# what the loop sees


@pytest.mark.parametrize("filling", ["wait", "immediate"])
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_grad_after_step_is_what_was_computed(delay: int, filling: str) -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1), delay, filling)
    for t in range(8):
        optimizer.zero_grad()
        loss_at(model, t).backward()
        before = [(p.grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()]
        optimizer.step()
        for p, (g, value) in zip(model.parameters(), before, strict=True):
            assert p.grad is g
            assert g is None or (value is not None and same(g, value))
    assert any(p.grad is None for p in model.parameters()) is False
    run(model, optimizer, [8])
    assert any(p.grad is None for p in model.parameters())  # batch 8 leaves the first layer out


@pytest.mark.parametrize("delay", [1, 4])
def test_what_is_queued_does_not_follow_the_loops_tensors(delay: int) -> None:
    """zero_grad(set_to_none=False) keeps writing into the same tensors; so does scribbling over them."""
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.1), delay)
    path = []
    for t in range(0, 40, 5):  # batches with gradients everywhere, or zero would differ from None
        optimizer.zero_grad(set_to_none=False)
        loss_at(model, t).backward()
        optimizer.step()
        path.append(flat(model))
        for p in model.parameters():
            assert p.grad is not None
            p.grad.mul_(-3).add_(1)
    clean = make_model()
    fresh = Delayed(torch.optim.SGD(clean.parameters(), lr=0.1), delay)
    assert_paths(path, run(clean, fresh, range(0, 40, 5)))


def test_accumulated_gradients_are_queued_as_accumulated() -> None:
    p = torch.zeros(1, requires_grad=True)
    optimizer = Delayed(torch.optim.SGD([p], lr=1.0), delay=1)
    seen = []
    for _ in range(3):  # never zeroed: grad is 1, 2, 3
        (1.0 * p).sum().backward()
        optimizer.step()
        seen.append(-p.item())
    assert seen == [0.0, 1.0, 3.0]


@pytest.mark.parametrize("delay", [0, 2])
def test_closure_is_evaluated_once_with_gradients_enabled(delay: int) -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.Adam(model.parameters(), lr=0.01), delay)
    path, losses, calls = [], [], []
    for t in range(8):

        def closure(t: int = t) -> Tensor:
            calls.append(t)
            optimizer.zero_grad()
            loss = loss_at(model, t)
            loss.backward()
            return loss

        with torch.no_grad():
            losses.append(optimizer.step(closure))  # type: ignore[arg-type, call-overload]
        path.append(flat(model))
    assert calls == list(range(8))
    assert_paths(path, oracle(lambda p: torch.optim.Adam(p, lr=0.01), delay, "wait", 8))
    again = make_model()
    for t in range(min(delay + 1, 8)):  # until the first update the parameters are the initial ones
        assert losses[t] == loss_at(again, t)
    assert optimizer.step() is None


def test_a_failing_step_leaves_gradients_and_queue_alone() -> None:
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Delayed(inner, delay=1)
    run(model, optimizer, range(2))
    queue, start = optimizer.queue, flat(model)

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    hook = inner.register_step_pre_hook(fail)
    optimizer.zero_grad()
    loss_at(model, 2).backward()
    mine = [p.grad for p in model.parameters()]
    with pytest.raises(RuntimeError, match="no"):
        optimizer.step()
    assert all(p.grad is g for p, g in zip(model.parameters(), mine, strict=True))
    assert optimizer.queue is queue
    hook.remove()
    optimizer.step()
    assert not same(flat(model), start)
    assert_paths([flat(model)], oracle(lambda p: torch.optim.SGD(p, lr=0.1), 1, "wait", 3)[-1:])


# a drop-in optimizer


def test_groups_state_and_defaults_are_the_wrapped_ones() -> None:
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = Delayed(inner, delay=1)
    assert isinstance(optimizer, torch.optim.Optimizer)

    def shared() -> bool:
        return (
            optimizer.param_groups is inner.param_groups
            and optimizer.state is inner.state
            and optimizer.defaults is inner.defaults
        )

    assert shared()
    run(model, optimizer, range(3))
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch makes new objects here
    assert shared()
    optimizer.param_groups[0]["lr"] = 0.0
    start = flat(model)
    run(model, optimizer, range(3, 5))
    assert same(flat(model), start)
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, step_size=2, gamma=0.5),
    "onecycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=12),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "warmup": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.CosineAnnealingLR(o, 8)], milestones=[4]
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("name", ["momentum", "adamw"])
@pytest.mark.parametrize("delay", [0, 3])
def test_schedulers_act_as_on_the_bare_optimizer(kind: str, name: str, delay: int) -> None:
    """Learning rates (and OneCycle's momentum) follow the loop's steps; a stale gradient gets those of the moment."""
    bare_model = make_model()
    params = list(bare_model.parameters())
    bare = OPTIMIZERS[name](params)
    model = make_model()
    optimizer = Delayed(OPTIMIZERS[name](model.parameters()), delay)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "lr_scheduler.step() before optimizer.step()" would be one
        warnings.filterwarnings("ignore", message="The epoch parameter")  # SequentialLR's own
        scheduler = SCHEDULERS[kind](optimizer)
        path, groups = [], []
        for t in range(11):
            path += run(model, optimizer, [t])
            scheduler.step()
            groups.append({k: v for k, v in optimizer.param_groups[0].items() if k != "params"})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the oracle does skip steps
        bare_scheduler = SCHEDULERS[kind](bare)
        gradients: list[list[Tensor | None]] = []
        for t in range(11):
            gradients.append(list(torch.autograd.grad(loss_at(bare_model, t), params, allow_unused=True)))
            if t >= delay:
                for p, g in zip(params, gradients[t - delay], strict=True):
                    p.grad = g
                bare.step()
            assert same(path[t], flat(bare_model))
            bare_scheduler.step()
            assert groups[t] == {k: v for k, v in bare.param_groups[0].items() if k != "params"}
    assert len({g["lr"] for g in groups}) > 2


def test_reduce_on_plateau_takes_it() -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.1), delay=2)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for _ in range(3):
        scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)


def test_a_group_added_later_first_moves_d_steps_later() -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model[2].parameters(), lr=0.1), delay=2)
    run(model, optimizer, range(4))
    optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.02})
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.02]
    start = model[0].weight.detach().clone()
    gradients = []
    for t in (4, 5, 6):
        optimizer.zero_grad()
        loss_at(model, t).backward()
        gradients.append(model[0].weight.grad)
        saved = optimizer.state_dict()["delayed"]["queue"]
        assert {len(row) for row in saved} == {4}
        assert same(model[0].weight, start)
        optimizer.step()
    assert gradients[0] is not None
    assert same(model[0].weight, torch.add(start, gradients[0], alpha=-0.02))


def test_step_hooks_run_every_step_and_state_hooks_once() -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.1), delay=2)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))  # type: ignore[arg-type]
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    run(model, optimizer, range(3))
    assert seen == ["pre", "post"] * 3
    seen.clear()
    optimizer.register_state_dict_pre_hook(lambda *_: seen.append("save"))
    optimizer.register_load_state_dict_post_hook(lambda *_: seen.append("load"))
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["save", "load"]


def test_gradient_scaler_skips_what_overflowed() -> None:
    """torch.amp unscales before step() and skips it on inf: nothing is queued for that batch."""
    p = torch.zeros(1, requires_grad=True)
    optimizer = Delayed(torch.optim.SGD([p], lr=1.0), delay=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    seen = []
    for factor in (1.0, float("inf"), 2.0, 4.0):
        optimizer.zero_grad()
        scaler.scale((factor * p).sum() + 0.0).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append(-p.item())
    assert seen == [0.0, 0.0, 1.0, 3.0]


def test_deepcopy_and_pickle_continue_alike() -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.Adam(model.parameters(), lr=0.01), delay=3)
    run(model, optimizer, range(5))
    copied = copy.deepcopy((model, optimizer))
    pickled = pickle.loads(pickle.dumps((model, optimizer)))
    path = run(model, optimizer, range(5, 10))
    assert_paths(run(*copied, range(5, 10)), path)
    assert_paths(run(*pickled, range(5, 10)), path)


def test_repr_names_the_wrapped_optimizer() -> None:
    assert "delay=4" in repr(Delayed(torch.optim.SGD([torch.zeros(1)], lr=0.1), 4))
    assert "SGD" in repr(Delayed(torch.optim.SGD([torch.zeros(1)], lr=0.1), 4))


# where the queue lives


def test_the_queue_lives_on_its_device() -> None:
    """The meta device holds no values, so this test stops before a gradient is due."""
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.1), 2, device="meta")
    run(model, optimizer, range(2))
    assert [{g.device.type for g in row.values()} for row in optimizer.queue] == [{"meta"}] * 2
    assert all(p.grad is not None and p.grad.device.type == "cpu" for p in model.parameters())


def test_device_cpu_gives_the_same_bits() -> None:
    model = make_model()
    optimizer = Delayed(OPTIMIZERS["adam"](model.parameters()), 3, device="cpu")
    assert_paths(run(model, optimizer, range(10)), oracle(OPTIMIZERS["adam"], 3, "wait", 10))


def test_queued_gradients_keep_no_graph() -> None:
    p = torch.ones(1, requires_grad=True)
    optimizer = Delayed(torch.optim.SGD([p], lr=0.1), 2)
    (p.grad,) = torch.autograd.grad((p**2).sum(), p, create_graph=True)
    assert p.grad.grad_fn is not None
    optimizer.step()
    assert not optimizer.queue[0][p].requires_grad
    assert p.grad.grad_fn is not None
    p.grad = None  # breaks the cycle


# saving


def to_json(tree: Any) -> tuple[str, dict[str, Tensor]]:
    """JSON + a table of tensors; anything that is not a plain value is an error."""
    tensors: dict[str, Tensor] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, Tensor):
            name = f"t{len(tensors)}"
            tensors[name] = node.detach().clone().contiguous()
            return {"tensor": name}
        if isinstance(node, dict):
            return {"dict": [[walk(k), walk(v)] for k, v in node.items()]}
        if isinstance(node, list | tuple):
            return [walk(v) for v in node]
        assert node is None or type(node) in (str, int, float, bool), f"{type(node)} is not a plain value"
        return node

    return json.dumps(walk(tree)), tensors


def from_json(text: str, tensors: dict[str, Tensor]) -> Any:
    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(v) for v in node]
        if isinstance(node, dict):
            return tensors[node["tensor"]] if "tensor" in node else {walk(k): walk(v) for k, v in node["dict"]}
        return node

    return walk(json.loads(text))


@each_optimizer
@pytest.mark.parametrize("filling", ["wait", "immediate"])
@pytest.mark.parametrize("stop", [0, 2, 4, 9])  # empty, filling, just full (with a None inside), long full
def test_saved_and_loaded_continues_to_the_same_bits(name: str, filling: str, stop: int) -> None:
    model = make_model()
    optimizer = Delayed(OPTIMIZERS[name](model.parameters()), 4, filling)
    run(model, optimizer, range(stop))
    text, tensors = to_json(optimizer.state_dict())
    file = safetensors.torch.save({**tensors, **{f"model.{k}": v for k, v in model.state_dict().items()}})
    expected = run(model, optimizer, range(stop, stop + 8))

    loaded = safetensors.torch.load(file)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model.load_state_dict({k.removeprefix("model."): v for k, v in loaded.items() if k.startswith("model.")})
    optimizer = Delayed(OPTIMIZERS[name](model.parameters()), 4, filling)
    optimizer.load_state_dict(from_json(text, loaded))
    assert len(optimizer.queue) == min(stop, 4)
    assert_paths(run(model, optimizer, range(stop, stop + 8)), expected)


def test_state_dict_needs_no_pickle_and_is_a_snapshot() -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.1), 3)
    run(model, optimizer, range(5))
    state = optimizer.state_dict()
    text, tensors = to_json(state)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    torch.load(file, weights_only=True)
    run(model, optimizer, range(5, 12))
    later_text, later = to_json(state)
    assert later_text == text
    assert all(same(later[k], tensors[k]) for k in tensors)


def test_loading_copies_the_queue() -> None:
    model = make_model()
    optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.1), 3)
    run(model, optimizer, range(5))
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    for row in state["delayed"]["queue"]:
        for g in row:
            if g is not None:
                g.fill_(float("nan"))
    assert_paths(run(model, optimizer, range(5, 9)), oracle(lambda p: torch.optim.SGD(p, lr=0.1), 3, "wait", 9)[5:])


# refusals


def parameter() -> Tensor:
    return torch.zeros(2, requires_grad=True)


@pytest.mark.parametrize("delay", [-1, 1.0, 2.5, True, "3", None, float("nan")])
def test_delay_must_be_a_whole_number(delay: Any) -> None:
    with pytest.raises(ConfigError, match=r"delay must be a whole number of steps, at least 0, got"):
        Delayed(torch.optim.SGD([parameter()], lr=0.1), delay)


def test_numpys_integers_are_whole_numbers() -> None:
    assert type(Delayed(torch.optim.SGD([parameter()], lr=0.1), np.int64(3)).delay) is int  # type: ignore[arg-type]


def test_default_delay_is_32() -> None:
    optimizer = Delayed(torch.optim.SGD([parameter()], lr=0.1))
    assert (optimizer.delay, optimizer.filling) == (32, "wait")


class NeedsClosure(torch.optim.SGD):
    def step(self, closure: Callable[[], float]) -> float:  # type: ignore[override]
        return closure()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.optim.LBFGS([parameter()]), "LBFGS cannot be delayed: its step needs a closure"),
        (lambda: NeedsClosure([parameter()], lr=0.1), "NeedsClosure cannot be delayed: its step needs a closure"),
        (lambda: torch.optim.SparseAdam([parameter()]), "SparseAdam cannot be delayed: it takes sparse gradients"),
        (lambda: torch.optim.SGD([parameter()], lr=0.1, differentiable=True), "differentiable=True cannot be delayed"),
        (lambda: Delayed(torch.optim.SGD([parameter()], lr=0.1), 2), "already delayed by 2"),
        (lambda: nn.Linear(1, 1), "wraps a torch.optim.Optimizer, got Linear"),
    ],
)
def test_refused_optimizers_say_why(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Delayed(make(), 2)


def test_unknown_filling_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown filling 'immediat' \(did you mean 'immediate'\?\); known: imm.*wait"
    ):
        Delayed(torch.optim.SGD([parameter()], lr=0.1), 2, "immediat")


def test_sparse_gradients_are_refused_before_anything_moves() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    optimizer = Delayed(torch.optim.SGD(table.parameters(), lr=0.1), 0)
    start = table.weight.detach().clone()
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ConfigError, match=r"layout torch.sparse_coo cannot be delayed.*sparse=False"):
        optimizer.step()
    assert same(table.weight, start)
    assert optimizer.queue == ()
    assert table.weight.grad is not None


def test_a_misfit_state_dict_is_refused_and_changes_nothing() -> None:
    model = make_model()

    def make(delay: int, filling: str = "wait") -> Delayed:
        return Delayed(torch.optim.SGD(model.parameters(), lr=0.1), delay, filling)

    optimizer = make(3)
    run(model, optimizer, range(2))
    queue = optimizer.queue
    good = optimizer.state_dict()
    good["param_groups"][0]["lr"] = 5.0

    def queued(rows: list[Any]) -> dict[str, Any]:
        return {**good, "delayed": {**good["delayed"], "queue": rows}}

    rows = good["delayed"]["queue"]
    for bad, reason in (
        (optimizer.optimizer.state_dict(), "holds no queue of gradients"),
        ({**good, "delayed": {**good["delayed"], "delay": 4}}, "saved with delay 4, this wrapper has 3"),
        ({**good, "delayed": {**good["delayed"], "filling": "immediate"}}, "saved with filling 'immediate'"),
        (queued(rows * 2), "at most 3 rows of 4 gradients"),
        (queued([rows[0][:-1]]), "at most 3 rows of 4 gradients"),
        (queued([rows[0][::-1]]), "each shaped as its parameter"),
    ):
        with pytest.raises(ConfigError, match=reason):
            optimizer.load_state_dict(bad)
        assert optimizer.queue is queue
        assert optimizer.param_groups[0]["lr"] == 0.1
    optimizer.load_state_dict(good)
    assert optimizer.param_groups[0]["lr"] == 5.0
