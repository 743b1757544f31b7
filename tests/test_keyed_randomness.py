"""Randomness inside a model is a function of the key of its batch, and the same numbers as torch's own."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import offbeat
from offbeat.tasks.randomness import Keyed
from random_tasks import TASKS

MODULES = [
    (nn.Dropout(0.3), (5, 7)),
    (nn.Dropout(0.3), (0, 7)),
    (nn.Dropout(0.9, inplace=True), (5, 7)),
    (nn.Dropout(0.0), (5, 7)),
    (nn.Dropout(1.0), (5, 7)),
    (nn.Dropout2d(0.3), (4, 5, 3, 3)),
    (nn.Dropout2d(0.3, inplace=True), (4, 5, 3, 3)),
    (nn.Dropout2d(0.3), (4, 5, 3)),
    (nn.Dropout3d(0.3), (4, 5, 2, 3, 3)),
    (nn.Dropout2d(1.0), (4, 5, 3, 3)),
    # torch takes 4-d input of dropout3d as one sample (C, D, H, W).
    (nn.Dropout3d(0.3), (4, 5, 3, 3)),
]


@pytest.mark.parametrize(("module", "shape"), MODULES, ids=[f"{m}-{len(s)}d" for m, s in MODULES])
def test_keyed_dropout_is_torch_seeded_with_the_key(module, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    with Keyed(123):
        keyed = [module.train()(x.clone()) for _ in range(2)]
        asleep = module.eval()(x.clone())
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator was used"
    torch.manual_seed(123)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch remarks on 3-d input
        native = [module.train()(x.clone()) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(keyed, native, strict=True))
    assert torch.equal(asleep, x)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(5),
        lambda: torch.randn(5),
        lambda: torch.randint(0, 100, (5,)),
        lambda: torch.randperm(20),
        lambda: torch.normal(torch.zeros(5), torch.ones(5)),
        lambda: torch.bernoulli(torch.full((9,), 0.5)),
        lambda: torch.multinomial(torch.ones(9), 4),
        lambda: torch.empty(5).uniform_(),
        lambda: torch.empty(5).normal_(),
        lambda: torch.empty(5).exponential_(),
        lambda: torch.empty(5).log_normal_(),
    ],
)
def test_keyed_functions_are_torch_seeded_with_the_key(draw):
    with Keyed(7):
        keyed = draw()
    torch.manual_seed(7)
    assert torch.equal(keyed, draw())


def test_a_gradient_is_a_function_of_its_key():
    for name in ("dropout", "alpha dropout", "gumbel", "numpy data"):
        task = TASKS[name]()
        point, batch = task.init(0), np.arange(16)
        a, b, c = (task.gradient(point, batch, key) for key in (1, 1, 2))
        assert torch.equal(a.value, b.value), name
        assert not torch.equal(a.value, c.value), name


@pytest.mark.parametrize(("name", "said"), [("alpha dropout", True), ("numpy data", True), ("dropout", False)])
def test_a_model_that_runs_one_gradient_at_a_time_says_so_once_with_the_remedy(name, said, capsys):
    task = TASKS[name]()
    offbeat.train(task, "asgd", 2, budget="6updates", batch=8, out=False)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("one gradient at a time")]
    assert len(lines) == said
    assert all("nn.Dropout, torch.rand and their like" in line for line in lines)
