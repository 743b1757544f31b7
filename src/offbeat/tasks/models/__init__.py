"""The papers' models, in plain torch. The table below is all there is to registering one.

A model is made by a function of the shape of one sample and the number of classes; further arguments are its own.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from offbeat.core.errors import ConfigError, unknown

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]
"""Of one sample: (channels, height, width)."""


class Model(NamedTuple):
    """A named model: where it is made, one line about it, the sample and classes of its paper, its size and work.

    Operations are those of torch's flop counter for one sample: matrix products and convolutions, one multiply-add
    counted as two. They are written down here so that a list is instant; a test counts them anew.
    """

    path: str
    line: str
    shape: Shape
    classes: int
    parameters: int
    forward: int
    training: int
    """Operations forward and backward together."""
    published: float | None = None
    """The computation-communication ratio in Table 6 of wongpanich2020."""
    defaults: Mapping[str, Any] = {}
    """Settings that suit it, as in its paper."""

    @property
    def factory(self) -> "Callable[..., nn.Module]":
        module, _, name = self.path.partition(":")
        made: Callable[..., nn.Module] = getattr(import_module(f"offbeat.tasks.models.{module}"), name)
        return made


_GREY28, _RGB32, _RGB224 = (1, 28, 28), (3, 32, 32), (3, 224, 224)

MODELS: Mapping[str, Model] = {
    "lenet5": Model("lenet:lenet5", "LeNet-5, ReLU, max-pooling", (1, 32, 32), 10, 61_706, 833_040, 2_263_920),
    "cnn": Model("lenet:cnn", "the larger CNN of lamour2023, Figure 6", _GREY28, 10, 1_199_882, 23_984_896, 71_565_312),
    "cifar10-full": Model(
        "caffe:cifar10_full",
        "Caffe's cifar10-full",
        _RGB32,
        10,
        89_578,
        24_596_480,
        68_874_240,
        published=109,
        defaults={
            "optimizer.lr": 0.001,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 0.004,
            # In Caffe's example conv3 has none: its bias learns at the common rate.
            "optimizer.multipliers": {
                "conv1.bias": {"lr": 2.0},
                "conv2.bias": {"lr": 2.0},
                "ip1.weight": {"decay": 250.0},
                "ip1.bias": {"lr": 2.0, "decay": 0.0},
            },
            "data.batch": 100,
        },
    ),
    "lstm": Model(
        "lstm:lstm",
        "the pure LSTM of wongpanich2020: a row a step",
        _GREY28,
        10,
        137_098,
        7_543_296,
        22_298_112,
        defaults={"optimizer.name": "adam", "optimizer.lr": 0.001, "data.batch": 256},
    ),
    "densenet40": Model(
        "densenet:densenet40",
        "DenseNet-40, growth 12, dropout 0.2",
        _RGB32,
        10,
        1_019_722,
        529_625_856,
        1_587_992_832,
        published=555,
        defaults={
            "optimizer.lr": 0.1,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 1e-4,
            "data.batch": 64,
        },
    ),
    "resnet18": Model(
        "resnet:resnet18",
        "ResNet-18 for CIFAR: 3x3 stem",
        _RGB32,
        10,
        11_173_962,
        1_110_845_440,
        3_328_997_376,
        defaults={
            "optimizer.lr": 0.1,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 5e-4,
            "data.batch": 128,
        },
    ),
    "resnet50": Model(
        "resnet:resnet50",
        "ResNet-50, the original",
        _RGB224,
        1000,
        25_557_032,
        7_715_946_496,
        22_911_811_584,
        published=308,
        defaults={
            "optimizer.lr": 0.1,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 1e-4,
        },
    ),
    "googlenet-v2": Model(
        "inception:googlenet_v2",
        "GoogLeNet-v2: BN-Inception",
        _RGB224,
        1000,
        11_295_240,
        4_065_200_128,
        11_959_572_480,
        published=736,
        defaults={
            "optimizer.lr": 0.06,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 2e-4,
        },
    ),
    "mlp": Model("mlp:mlp", "depth and parameters given, width solved", _GREY28, 10, 99_670, 198_880, 424_160),
    "logistic": Model("mlp:logistic", "logistic regression: one linear layer", _GREY28, 10, 7_850, 15_680, 31_360),
}


def model(name: str) -> Model:
    """The row of `name`; an unknown name lists the known ones."""
    if not isinstance(name, str) or name not in MODELS:
        raise unknown("model", str(name), MODELS)
    return MODELS[name]


def build(name: str, shape: Shape, classes: int, options: Mapping[str, Any] | None = None) -> "nn.Module":
    """A model for samples of this shape; wrong options list the right ones."""
    factory = model(name).factory
    own = [p for p in signature(factory).parameters if p not in ("shape", "classes")]
    for option in options or {}:
        if option not in own:
            if not own:
                raise ConfigError(f"model {name!r} has no options, got {option!r}")
            raise unknown(f"option of model {name!r}", option, own)
    return factory(shape, classes, **(options or {}))
