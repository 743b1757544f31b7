"""What was published is never changed: nobody mutates what another may still read."""

import hashlib
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import offbeat
from harness import USABLE, cluster, mlp_task, optimizer_options, simulate
from offbeat.core.codec import fields_of
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers import SOLVERS
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.tasks.quadratic import Quadratic
from random_tasks import TASKS

SGD = partial(torch.optim.SGD, lr=0.1)
ALONE = ("plain", "constant-delay")
FEW_STEPS = {name: {"steps": 2} for name in ("fedbuff", "async-diloco")}  # of a worker between two pushes


class Ledger:
    """Remembers every tensor that was handed over, with the hash it had."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Tensor, str]] = []

    @staticmethod
    def hash(t: Tensor) -> str:
        return hashlib.sha256(t.detach().numpy().tobytes()).hexdigest()

    def add(self, label: str, thing: object) -> None:
        if isinstance(thing, Tensor):
            self.entries.append((label, thing, self.hash(thing)))
        elif isinstance(thing, dict):
            for name, value in thing.items():
                self.add(f"{label} {name}", value)
        elif hasattr(thing, "_asdict"):
            self.add(label, thing._asdict())
        elif isinstance(thing, list | tuple):
            for value in thing:
                self.add(label, value)
        elif type(thing).__module__.startswith("offbeat.core"):  # an effect, a gradient, a view
            for name in fields_of(type(thing)):
                self.add(f"{label} {type(thing).__name__}.{name}", getattr(thing, name))

    def check(self) -> None:
        for label, tensor, before in self.entries:
            assert self.hash(tensor) == before, f"{label} was changed after it was published"


def watched(task, solver, ledger):
    """The same task and solver, with everything that passes between them in the ledger."""
    gradient, evaluate, on_call, round_ = task.gradient, task.evaluate, solver.on_call, solver.round

    def watched_gradient(point, batch, key):
        ledger.add("task", point)
        g = gradient(point, batch, key)
        ledger.add("task", g)
        return g

    def watched_call(s, worker, payload):
        ledger.add("pushed", payload)
        for effect in on_call(s, worker, payload):
            ledger.add("server", effect)
            yield effect

    def watched_round(w):
        rule, answer = round_(w), None
        while True:
            try:
                effect = rule.send(answer)
            except StopIteration:
                return
            ledger.add("worker", effect)
            answer = yield effect
            ledger.add("answer", answer)

    def watched_evaluation(point, mapper):
        ledger.add("evaluated", point)
        return evaluate(point, mapper)

    task.gradient, task.evaluate = watched_gradient, watched_evaluation
    solver.on_call, solver.round = watched_call, watched_round
    return task, solver


@pytest.mark.parametrize("name", SOLVERS)
def test_nothing_that_was_published_is_changed_by_any_solver(name):
    machines = 1 if name in ALONE else 4
    for make in (TASKS["quadratic"], TASKS["batch norm"]):
        for options in ({"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}, {"lr": 0.05}):
            try:
                made = offbeat.solver(name, **options, **FEW_STEPS.get(name, {}))
            except offbeat.ConfigError:
                assert "momentum" in options, "plain SGD must do"
                continue
            ledger = Ledger()
            task, solver = watched(make(), made, ledger)
            offbeat.train(task, solver, machines, budget="25updates", batch=8, out=False, evaluate_every="3updates")
            assert len(ledger.entries) > 100
            ledger.check()


@pytest.mark.parametrize("name", USABLE)
def test_nothing_that_was_published_is_changed_by_any_optimizer(name):
    everything = {"weight_decay": 0.1, "maximize": True, "momentum": 0.9, "amsgrad": True, "foreach": True}
    for wanted in ({}, {"weight_decay": 0.1}, everything):
        ledger = Ledger()
        made = optimizer_factory(name, lr=0.01, **(optimizer_options(name, wanted) or {}))
        task, solver = watched(mlp_task(), ParameterServer(made), ledger)
        offbeat.train(task, solver, 3, budget="8updates", batch=8, out=False)
        ledger.check()


def test_views_of_different_versions_share_no_memory():
    ledger = Ledger()
    task, solver = watched(Quadratic(4), ASGD(SGD), ledger)
    simulate(task, solver, cluster(4), updates=20)
    sent = [t for label, t, _ in ledger.entries if label == "server Reply.value View.x"]
    assert len({t.untyped_storage().data_ptr() for t in sent}) == len(sent) == 20


def test_a_model_that_writes_to_its_parameters_does_not_write_to_the_point():
    """nn.Embedding(max_norm=...) renormalises its weight in place during the forward pass."""

    def make():
        return nn.Sequential(nn.Embedding(20, 6, max_norm=0.5), nn.Flatten(), nn.Linear(18, 4))

    g = torch.Generator().manual_seed(0)
    data = torch.randint(0, 20, (64, 3), generator=g), torch.randint(0, 4, (64,), generator=g)
    task = offbeat.task(make, F.cross_entropy, data, data)
    point = task.init(0)
    before = point.x.clone()
    task.gradient(point, np.arange(16), 0)
    task.evaluate(point, lambda f, items: [f(i) for i in items])
    assert torch.equal(point.x, before)
