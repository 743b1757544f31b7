"""The papers' models, in plain torch."""

from collections.abc import Callable, Mapping

from torch import nn


def lenet5(*, size: int = 32, channels: int = 1, classes: int = 10) -> nn.Module:
    """LeNet-5 with ReLU and max-pooling: 61,706 parameters for one channel and ten classes.

    32x32 input is taken as it is; 28x28 is padded by the first convolution, so that both have the same parameters.
    LeCun et al. 1998; as in jain2018 (32x32) and lamour2023 (28x28).
    """
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=(32 - size) // 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


MODELS: Mapping[str, Callable[[], nn.Module]] = {"lenet5": lenet5}
"""Models by name, with the papers' defaults."""
