"""GoogLeNet-v2: Inception with BatchNorm (Ioffe and Szegedy 2015), in the widths of its public Caffe version."""

from typing import Literal, NamedTuple

from torch import Tensor, cat, nn

from offbeat.tasks.models import Shape


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    """Convolution (with a bias, as in Caffe), BatchNorm, ReLU."""
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2), nn.BatchNorm2d(outputs), nn.ReLU()]


class Widths(NamedTuple):
    """One row of the paper's Figure 5: channels of each branch; no 1x1 and no projection where the size is halved."""

    one: int
    three_reduce: int
    three: int
    double_reduce: int
    double: int
    pool: Literal["avg", "max"]
    project: int

    @property
    def outputs(self) -> int:
        return self.one + self.three + self.double + self.project


_INCEPTION = (
    Widths(64, 64, 64, 64, 96, "avg", 32),  # 3a
    Widths(64, 64, 96, 64, 96, "avg", 64),  # 3b
    Widths(0, 128, 160, 64, 96, "max", 0),  # 3c
    Widths(224, 64, 96, 96, 128, "avg", 128),  # 4a
    Widths(192, 96, 128, 96, 128, "avg", 128),  # 4b
    Widths(160, 128, 160, 128, 160, "avg", 128),  # 4c
    Widths(96, 128, 192, 160, 192, "avg", 128),  # 4d
    Widths(0, 128, 192, 192, 256, "max", 0),  # 4e
    Widths(352, 192, 320, 160, 224, "avg", 128),  # 5a
    Widths(352, 192, 320, 192, 224, "max", 128),  # 5b
)


class Inception(nn.Module):
    """1x1; 3x3; two 3x3; and a pool; side by side. Without a 1x1 branch it halves the size and passes the pool on."""

    def __init__(self, inputs: int, w: Widths) -> None:
        super().__init__()
        stride = 1 if w.one else 2
        three = [*_conv(inputs, w.three_reduce, 1), *_conv(w.three_reduce, w.three, 3, stride)]
        double = [
            *_conv(inputs, w.double_reduce, 1),
            *_conv(w.double_reduce, w.double, 3),
            *_conv(w.double, w.double, 3, stride),
        ]
        if not w.one:
            pool: list[nn.Module] = [nn.MaxPool2d(3, 2, ceil_mode=True)]
        else:
            kind = nn.AvgPool2d(3, 1, 1) if w.pool == "avg" else nn.MaxPool2d(3, 1, 1)
            pool = [kind, *_conv(inputs, w.project, 1)]
        branches = [_conv(inputs, w.one, 1)] if w.one else []
        self.branches = nn.ModuleList(nn.Sequential(*b) for b in [*branches, three, double, pool])

    def forward(self, x: Tensor) -> Tensor:
        return cat([branch(x) for branch in self.branches], 1)


def googlenet_v2(shape: Shape = (3, 224, 224), classes: int = 1000) -> nn.Module:
    """BN-Inception for ImageNet, without auxiliary classifiers: 11,295,240 parameters."""
    layers = [*_conv(shape[0], 64, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True)]
    layers += [*_conv(64, 64, 1), *_conv(64, 192, 3), nn.MaxPool2d(3, 2, ceil_mode=True)]
    inputs = 192
    for w in _INCEPTION:
        layers.append(Inception(inputs, w))
        inputs = w.outputs if w.one else w.outputs + inputs
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is not None
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return made
