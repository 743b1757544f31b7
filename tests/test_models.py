"""The papers' models against what is known of them: parameter counts, shapes, operations, and slow references."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.core.task import Point
from offbeat.lab.config import make
from offbeat.tasks.models import MODELS, build
from offbeat.tasks.models.caffe import WithinChannelLRN, cifar10_full
from offbeat.tasks.models.lenet import lenet5
from offbeat.tasks.models.mlp import parameters, solved_width
from offbeat.tasks.models.pooling import MaxPool2x2

# As printed by the papers or known of the public versions.
KNOWN = {
    "lenet5": 61_706,
    "cnn": 1_199_882,  # lamour2023's code
    "cifar10-full": (3 * 25 + 1) * 32 + (32 * 25 + 1) * 32 + (32 * 25 + 1) * 64 + (64 * 16 + 1) * 10,
    "lstm": (28 + 1) * 128 + 4 * (128 * 128 * 2 + 2 * 128) + (128 + 1) * 10,
    "densenet40": 1_019_722,
    "resnet18": 11_173_962,
    "resnet50": 25_557_032,
    "googlenet-v2": 11_295_240,
    "logistic": 7_850,
}


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return build(name, MODELS[name].shape, MODELS[name].classes)


@pytest.mark.parametrize("name", KNOWN)
def test_the_number_of_parameters_is_the_known_one(name):
    assert count(on_meta(name)) == KNOWN[name] == MODELS[name].parameters


@pytest.mark.parametrize("name", MODELS)
def test_the_listed_numbers_are_those_of_torchs_counter(name):
    row, module = MODELS[name], on_meta(name).eval()
    sample = torch.empty(1, *row.shape, device="meta")
    with FlopCounterMode(display=False) as forward:
        output = module(sample)
    with FlopCounterMode(display=False) as training:
        module(sample).sum().backward()
    assert output.shape == (1, row.classes)
    assert count(module) == row.parameters
    assert forward.get_total_flops() == row.forward
    assert training.get_total_flops() == row.training


def test_operations_of_lenet5_by_hand():
    """One multiply-add is two operations; backward is twice forward, but for the pixels' own gradient."""
    conv1, conv2 = 28 * 28 * 6 * 5 * 5, 10 * 10 * 16 * 6 * 5 * 5
    linear = 400 * 120 + 120 * 84 + 84 * 10
    assert MODELS["lenet5"].forward == 2 * (conv1 + conv2 + linear)
    assert MODELS["lenet5"].training == 3 * MODELS["lenet5"].forward - 2 * conv1


def test_operations_of_the_lstm_by_hand():
    steps, hidden = 28, 128
    each = 28 * hidden + 4 * hidden * (hidden + hidden)
    assert MODELS["lstm"].forward == 2 * (steps * each + hidden * 10)


def test_resnet50_needs_the_published_operations():
    """7.7 billion is the original with the stride in the 1x1; the common variant needs 8.2 billion."""
    assert round(MODELS["resnet50"].forward / 1e9, 1) == 7.7


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("lenet5", (1, 28, 28), 10),
        ("lenet5", (3, 32, 32), 7),
        ("cnn", (1, 32, 32), 10),
        ("cnn", (3, 32, 32), 10),
        ("cifar10-full", (3, 32, 32), 10),
        ("cifar10-full", (1, 28, 28), 10),
        ("lstm", (3, 32, 32), 10),
        ("densenet40", (1, 28, 28), 10),
        ("resnet18", (1, 28, 28), 5),
        ("resnet50", (3, 64, 64), 10),
        ("googlenet-v2", (3, 64, 64), 10),
        ("mlp", (1, 8, 8), 10),
        ("logistic", (3, 32, 32), 10),
    ],
)
def test_a_model_takes_other_shapes_and_classes(name, shape, classes):
    with torch.device("meta"):
        module = build(name, shape, classes)
    assert module(torch.empty(2, *shape, device="meta")).shape == (2, classes)


def test_both_inputs_of_lenet5_have_the_same_parameters():
    small, large = lenet5((1, 28, 28)), lenet5((1, 32, 32))
    assert [p.shape for p in small.parameters()] == [p.shape for p in large.parameters()]
    large.load_state_dict(small.state_dict())
    x = torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(small(x), large(F.pad(x, (2, 2, 2, 2))))


@pytest.mark.parametrize("name", ["lenet5", "cnn", "cifar10-full", "lstm", "mlp", "logistic"])
def test_gradients_of_a_task_are_those_of_autograd(name):
    """Through the flat vector and back: the task's machinery against a plain loss.backward()."""
    shape = MODELS[name].shape
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, *shape, generator=g), torch.randint(0, 10, (12,), generator=g)
    task = offbeat.task(lambda: build(name, shape, 10), F.cross_entropy, (x, y))
    point = task.init(3)
    point = Point(point.x + 0.05 * torch.randn(point.x.shape, generator=g), point.buffers)
    got = task.gradient(point, np.arange(8), key=5)
    module = task.module(point).train()
    torch.manual_seed(5)  # what the key stands for, where there is dropout
    F.cross_entropy(module(x[:8]), y[:8]).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    torch.testing.assert_close(got.value, expected)


def test_the_larger_cnn_is_that_of_the_papers_code():
    layers = [type(layer).__name__ for layer in build("cnn", (1, 28, 28), 10)]
    convolutions = ["Conv2d", "ReLU", "Conv2d", "MaxPool2x2", "Dropout", "Flatten"]
    assert layers == [*convolutions, "Linear", "ReLU", "Dropout", "Linear"]
    assert [m.p for m in build("cnn", (1, 28, 28), 10) if isinstance(m, nn.Dropout)] == [0.25, 0.5]


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(2, 11), st.integers(2, 11), st.integers(0, 99))
def test_pooling_gives_torchs_values_with_and_without_a_gradient(n, channels, height, width, seed):
    x = torch.randn(n, channels, height, width, generator=torch.Generator().manual_seed(seed)).relu_()
    x.view(-1)[seed % x.numel()] = math.nan  # a model that fails must be seen to fail
    expected = F.max_pool2d(x, 2)
    assert torch.equal(MaxPool2x2()(x).isnan(), expected.isnan())
    with torch.no_grad():
        got = MaxPool2x2()(x)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.nan_to_num(0), expected.nan_to_num(0))


def test_pooling_sends_back_torchs_gradient():
    x = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(0)).relu_().requires_grad_()
    weights = torch.arange(2 * 3 * 3 * 3.0).view(2, 3, 3, 3)
    got, expected = ((pool(x) * weights).sum() for pool in (MaxPool2x2(), nn.MaxPool2d(2)))
    assert torch.equal(*(torch.autograd.grad(y, x)[0] for y in (got, expected)))


# cifar10-full


def lrn_by_hand(x: np.ndarray, size: int, alpha: float, beta: float) -> np.ndarray:
    """Caffe's WITHIN_CHANNEL: the mean over the whole window, pixels outside being zeros."""
    out = np.empty_like(x)
    height, width = x.shape[2:]
    r = size // 2
    for i in range(height):
        for j in range(width):
            window = x[:, :, max(0, i - r) : i + r + 1, max(0, j - r) : j + r + 1]
            scale = 1 + alpha / size**2 * (window**2).sum((2, 3))
            out[:, :, i, j] = x[:, :, i, j] * scale**-beta
    return out


@pytest.mark.parametrize(("size", "alpha", "beta"), [(3, 5e-5, 0.75), (3, 2.0, 0.75), (5, 0.5, 1.5)])
def test_lrn_within_channels_is_its_definition(size, alpha, beta):
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    expected = lrn_by_hand(x.numpy(), size, alpha, beta)
    np.testing.assert_allclose(WithinChannelLRN(size, alpha, beta)(x).numpy(), expected, rtol=1e-12)


def test_lrn_within_channels_is_torchs_across_channels_turned_round():
    """A row of pixels in one channel is to the one what a column of channels is to the other."""
    row = torch.randn(1, 1, 1, 8, dtype=torch.float64)
    # A 3x3 window over one row holds 3 values of 9; torch divides its alpha by 3.
    across = nn.LocalResponseNorm(3, alpha=0.9 / 3, beta=0.75)(row.reshape(1, 8, 1, 1)).reshape(1, 1, 1, 8)
    torch.testing.assert_close(WithinChannelLRN(3, 0.9, 0.75)(row), across)


def test_cifar10_full_starts_as_caffe_does():
    torch.manual_seed(0)
    module = cifar10_full()
    for name, std in {"conv1": 1e-4, "conv2": 0.01, "conv3": 0.01, "ip1": 0.01}.items():
        layer = module.get_submodule(name)
        n = layer.weight.numel()
        assert abs(float(layer.weight.detach().std()) / std - 1) < 4 / math.sqrt(2 * n)
        assert abs(float(layer.weight.detach().mean())) < 4 * std / math.sqrt(n)
        assert not layer.bias.any()


def test_cifar10_full_pools_like_caffe():
    """Sizes 32 -> 16 -> 8 -> 4 by rounding up; windows at the edge average over what is there."""
    module = cifar10_full()
    x = torch.randn(1, 3, 32, 32)
    sides = []
    for name, layer in module.named_children():
        x = layer(x)
        if name.startswith("pool"):
            sides.append(x.shape[-1])
    assert sides == [16, 8, 4]
    ramp = torch.arange(4.0).repeat(4, 1)[None, None]
    assert module.pool2(ramp)[0, 0, 0].tolist() == [1.0, 2.5]  # (0+1+2)/3, (2+3)/2


def test_the_multipliers_of_cifar10_full_reach_the_optimizer():
    """One step of the configured optimizer against Caffe's update by hand: v = mu v + lr_m (g + wd_m w)."""
    from offbeat.optim.steppers import factors_of, optimizer_factory, start

    config = make({"task": "cifar10", "optimizer": {"lr": 0.5}})
    assert (config.optimizer.options, config.batch) == ({"momentum": 0.9, "weight_decay": 0.004}, 100)
    from offbeat.core.layout import Layout

    module = cifar10_full()
    layout = Layout.of([(n, p.shape) for n, p in module.named_parameters()])
    x = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    g = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    factory = optimizer_factory("sgd", lr=config.lr, **config.optimizer.options)
    after = start(factory, x, layout, config.optimizer.multipliers).step(g)
    caffe = {  # lr_mult, decay_mult
        "conv1.weight": (1, 1), "conv1.bias": (2, 1), "conv2.weight": (1, 1), "conv2.bias": (2, 1),
        "conv3.weight": (1, 1), "conv3.bias": (1, 1), "ip1.weight": (1, 250), "ip1.bias": (2, 0),
    }  # fmt: skip
    for segment, w, dw, new in zip(layout.segments, layout.views(x), layout.views(g), layout.views(after), strict=True):
        lr, decay = caffe[segment.name]
        assert factors_of(segment.name, config.optimizer.multipliers) == (lr, decay)
        torch.testing.assert_close(new, w - 0.5 * lr * (dw + 0.004 * decay * w))


def test_another_optimizer_does_not_get_the_settings_of_sgd():
    config = make({"task": {"name": "cifar10"}, "optimizer": {"name": "adam", "lr": 0.01}})
    assert config.optimizer.options == {}
    assert config.optimizer.multipliers is not None
    lstm = make({"task": {"name": "mnist", "model": "lstm"}})
    assert (lstm.optimizer.name, lstm.optimizer.lr, lstm.batch) == ("adam", 0.001, 256)


# The LSTM


def test_the_lstm_is_a_loop_over_rows():
    """The equations of Hochreiter and Schmidhuber (with forget gate), one row at a time, in float64."""
    torch.manual_seed(0)
    module = build("lstm", (1, 28, 28), 10).double()
    x = torch.randn(4, 1, 28, 28, dtype=torch.float64)
    w = {n: p.detach().numpy() for n, p in module.named_parameters()}

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    h = c = np.zeros((4, 128))
    for t in range(28):
        row = x[:, 0, t].numpy() @ w["transform.weight"].T + w["transform.bias"]
        z = row @ w["lstm.weight_ih_l0"].T + w["lstm.bias_ih_l0"] + h @ w["lstm.weight_hh_l0"].T + w["lstm.bias_hh_l0"]
        i, f, g, o = np.split(z, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    expected = h @ w["output.weight"].T + w["output.bias"]
    np.testing.assert_allclose(module(x).detach().numpy(), expected, atol=1e-12)


# DenseNet and ResNet


def test_densenet_layers_see_everything_before_them():
    module = build("densenet40", (3, 8, 8), 10, {"dropout": 0.0}).eval()
    x = torch.randn(1, 3, 8, 8)
    first, second = module[1], module[2]
    seen = module[0](x)
    grown = first(seen)
    assert grown.shape[1] == 16 + 12
    assert torch.equal(grown[:, :16], seen)
    assert torch.equal(second(grown)[:, :28], grown)


def test_a_residual_block_without_its_branch_is_the_identity():
    module = build("resnet18", (3, 32, 32), 10)
    block = copy.deepcopy(module[3]).eval()
    for p in block.branch.parameters():
        p.data.zero_()
    x = torch.randn(2, 64, 8, 8).relu()
    assert torch.equal(block(x), x)


# The MLP family


@given(
    inputs=st.integers(1, 4000),
    classes=st.integers(2, 50),
    depth=st.integers(1, 20),
    wanted=st.integers(1, 400_000),
)
@settings(max_examples=150, deadline=None)
def test_the_width_of_an_mlp_is_the_best_there_is(inputs, classes, depth, wanted):
    best = solved_width(inputs, classes, depth, wanted)
    error = abs(parameters(inputs, classes, depth, best) - wanted)
    assert all(error <= abs(parameters(inputs, classes, depth, w) - wanted) for w in range(1, best + 50))


@pytest.mark.parametrize("depth", [1, 2, 5, 12])
def test_deep_and_wide_networks_have_the_same_size(depth):
    module = build("mlp", (1, 28, 28), 10, {"depth": depth, "parameters": 200_000})
    linear = [layer for layer in module if isinstance(layer, nn.Linear)]
    assert len(linear) == depth + 1
    width = linear[0].out_features
    assert count(module) == parameters(784, 10, depth, width)
    assert abs(count(module) - 200_000) <= (784 + 1 + 2 * depth * (width + 1) + 10) / 2 + 1  # half a step of width


def test_logistic_regression_starts_at_chance():
    task = offbeat.named_task("digits", model="logistic")
    assert task.evaluate(task.init(0), lambda f, items: [f(i) for i in items])["loss"] == pytest.approx(math.log(10))


# By name


def test_a_task_takes_any_model_and_its_options():
    task = offbeat.named_task("digits", model="mlp", depth=3, parameters=20_000, samples=200, test_samples=100)
    assert (task.size, task.name) == (200, "digits/mlp")
    assert task.describe()["test_samples"] == 100
    assert task.describe()["depth"] == 3
    counts = np.bincount(task.labels)
    assert counts.max() - counts.min() <= 3  # each label in proportion


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "lenet"}, "unknown model 'lenet' (did you mean 'lenet5'?)"),
        ({"model": "mlp", "depht": 2}, "unknown option of model 'mlp' 'depht' (did you mean 'depth'?)"),
        ({"model": "lenet5", "depth": 2}, "model 'lenet5' has no options, got 'depth'"),
        ({"model": "mlp", "depth": 0}, "depth must be at least 1 hidden layer, got 0"),
        ({"model": "mlp", "parameters": 10}, "need at least"),
        ({"model": "densenet40", "depth": 41}, "4 more than a multiple of 3, got 41"),
        ({"size": 16}, "lenet5 takes pictures of 28x28 or 32x32, got 16x16"),
        ({"size": 0}, "task.size must be a number of pixels from 1 to 1024, got 0"),
        ({"scaling": "half"}, "unknown task.scaling 'half'"),
        ({"samples": 2000}, "task.samples must be from 1 to the 1,437 samples that there are, got 2000"),
    ],
)
def test_a_wrong_model_or_option_is_told_in_one_line(options, message):
    with pytest.raises(ConfigError) as caught:
        offbeat.named_task("digits", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_caffes_scaling_takes_off_the_mean_picture():
    from offbeat.data.arrays import load

    unit, caffe = load("digits", scaling="unit"), load("digits", scaling="caffe")
    torch.testing.assert_close(caffe.train_x, 255 * (unit.train_x - unit.train_x.mean(0)), atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(caffe.test_x, 255 * (unit.test_x - unit.train_x.mean(0)), atol=1e-3, rtol=1e-5)


def test_the_list_of_models_shows_both_conventions_beside_the_papers(capsys, monkeypatch):
    import json
    import sys

    from offbeat import cli

    def shown(*args):
        monkeypatch.setattr(sys, "argv", ["offbeat", "list", "models", *args])
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr().out

    rows = {row["name"]: row for row in json.loads(shown("--json"))}
    published = {name: row["cc_published"] for name, row in rows.items() if row["cc_published"] is not None}
    assert published == {"cifar10-full": 109, "densenet40": 555, "resnet50": 308, "googlenet-v2": 736}  # Table 6
    for row in rows.values():
        assert row["cc_forward"] == row["forward"] / row["parameters"]
        assert row["cc_training"] == row["training"] / row["parameters"]
    assert abs(rows["resnet50"]["cc_forward"] / 308 - 1) < 0.03  # the paper rounds 25.6 to 25 million
    text = shown()
    assert "25,557,032  7.72G    22.9G" in text
    assert "multiply-add" in text
