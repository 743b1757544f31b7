"""Residual networks (He et al. 2016): ResNet-18 for 32x32 pictures, ResNet-50 for 224x224."""

from torch import Tensor, nn

from offbeat.tasks.models import Shape


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    """A convolution with BatchNorm; padding keeps the size."""
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x)); the shortcut is the identity, or a 1x1 convolution where the shape changes."""

    def __init__(self, branch: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.branch(x) + self.shortcut(x)).relu()
        return out


def _basic(inputs: int, width: int, stride: int) -> Residual:
    """Two 3x3 convolutions."""
    branch = nn.Sequential(*_conv(inputs, width, 3, stride), nn.ReLU(), *_conv(width, width, 3))
    return Residual(branch, inputs, width, stride)


def _bottleneck(inputs: int, width: int, stride: int) -> Residual:
    """1x1, 3x3, 1x1 to four times the width; the stride is in the first 1x1, as in the original."""
    reduce, expand = _conv(inputs, width, 1, stride), _conv(width, 4 * width, 1)
    branch = nn.Sequential(*reduce, nn.ReLU(), *_conv(width, width, 3), nn.ReLU(), *expand)
    return Residual(branch, inputs, 4 * width, stride)


def _initialised(made: nn.Module) -> nn.Module:
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return made


def resnet18(shape: Shape = (3, 32, 32), classes: int = 10) -> nn.Module:
    """ResNet-18 as is usual for CIFAR: a 3x3 stem without stride or pooling; 11,173,962 parameters."""
    layers = [*_conv(shape[0], 64, 3), nn.ReLU()]
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            layers.append(_basic(inputs, width, stride=2 if stage and not block else 1))
            inputs = width
    return _initialised(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)))


def resnet50(shape: Shape = (3, 224, 224), classes: int = 1000) -> nn.Module:
    """ResNet-50 for ImageNet: 25,557,032 parameters, 7.7 billion operations a sample forward."""
    layers = [*_conv(shape[0], 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            layers.append(_bottleneck(inputs, width, stride=2 if stage and not block else 1))
            inputs = 4 * width
    return _initialised(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)))
