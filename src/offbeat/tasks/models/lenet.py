"""Small convolutional networks for grey pictures: LeNet-5, and the larger CNN of lamour2023."""

from torch import nn

from offbeat.core.errors import ConfigError
from offbeat.tasks.models import Shape
from offbeat.tasks.models.pooling import MaxPool2x2


def lenet5(shape: Shape = (1, 32, 32), classes: int = 10) -> nn.Module:
    """LeNet-5 with ReLU and max-pooling: 61,706 parameters for one channel and ten classes.

    32x32 input is taken as it is; 28x28 is padded by the first convolution, so that both have the same parameters.
    LeCun et al. 1998; as in jain2018 (32x32) and lamour2023 (28x28).
    """
    channels, *sides = shape
    if sides not in ([28, 28], [32, 32]):
        raise ConfigError(f"lenet5 takes pictures of 28x28 or 32x32, got {'x'.join(map(str, sides))}")
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=(32 - sides[0]) // 2),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        MaxPool2x2(),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def cnn(shape: Shape = (1, 28, 28), classes: int = 10) -> nn.Module:
    """The larger model of lamour2023, Figure 6: 1,199,882 parameters for 28x28 grey pictures and ten classes.

    Two 3x3 convolutions, one pooling, dropout 0.25 and 0.5. The paper's code has no ReLU after the second convolution.
    """
    channels, height, width = shape
    if min(height, width) < 6:
        raise ConfigError(f"cnn takes pictures of 6x6 and more, got {height}x{width}")
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        MaxPool2x2(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, classes),
    )
