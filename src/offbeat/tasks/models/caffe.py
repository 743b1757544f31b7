"""Caffe's cifar10-full, as its public example has it (examples/cifar10/cifar10_full_train_test.prototxt)."""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from offbeat.tasks.models import Shape


class WithinChannelLRN(nn.Module):
    """Local response normalisation over a neighbourhood of pixels within each channel.

    y = x (1 + alpha/n^2 sum_{n x n} x^2)^-beta, pixels outside counting as zeros. torch.nn.LocalResponseNorm sums over
    neighbouring channels instead.
    """

    def __init__(self, size: int, alpha: float, beta: float) -> None:
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        mean = F.avg_pool2d(x * x, self.size, stride=1, padding=self.size // 2)
        return x * (1 + self.alpha * mean) ** -self.beta


def cifar10_full(shape: Shape = (3, 32, 32), classes: int = 10) -> nn.Module:
    """89,578 parameters for 32x32 colour pictures and ten classes.

    Caffe's layers are kept in order and by name: pools of 3x3 with stride 2 that round up (max, average, average),
    Gaussian weights of standard deviation 0.0001, 0.01, 0.01, 0.01, zero biases. It expects pixels from 0 to 255 with
    the mean picture taken off (`task.scaling = "caffe"`), and its own learning rate for each layer (`MODELS`).
    """
    channels, height, width = shape
    for _ in range(3):
        height, width = (height - 2) // 2 + 1, (width - 2) // 2 + 1
    made = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 32, 5, padding=2),
            pool1=nn.MaxPool2d(3, 2, ceil_mode=True),
            relu1=nn.ReLU(),
            norm1=WithinChannelLRN(3, 5e-5, 0.75),
            conv2=nn.Conv2d(32, 32, 5, padding=2),
            relu2=nn.ReLU(),
            pool2=nn.AvgPool2d(3, 2, ceil_mode=True),
            norm2=WithinChannelLRN(3, 5e-5, 0.75),
            conv3=nn.Conv2d(32, 64, 5, padding=2),
            relu3=nn.ReLU(),
            pool3=nn.AvgPool2d(3, 2, ceil_mode=True),
            flat=nn.Flatten(),
            ip1=nn.Linear(64 * height * width, classes),
        )
    )
    stds = {"conv1": 1e-4, "conv2": 1e-2, "conv3": 1e-2, "ip1": 1e-2}
    with torch.no_grad():
        for name, std in stds.items():
            layer = made.get_submodule(name)
            assert isinstance(layer, nn.Conv2d | nn.Linear)
            assert layer.bias is not None
            layer.weight.normal_(0.0, std)
            layer.bias.zero_()
    return made
