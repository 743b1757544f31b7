"""DenseNet without bottleneck or compression (Huang et al. 2017), as wongpanich2020 trains it on CIFAR-10."""

from torch import Tensor, cat, nn

from offbeat.core.errors import ConfigError
from offbeat.tasks.models import Shape


class DenseLayer(nn.Module):
    """Adds `growth` channels: BN, ReLU, 3x3 convolution, dropout; the input is passed on beside them."""

    def __init__(self, channels: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.new = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, growth, 3, padding=1, bias=False),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return cat([x, self.new(x)], 1)


def densenet40(
    shape: Shape = (3, 32, 32), classes: int = 10, growth: int = 12, depth: int = 40, dropout: float = 0.2
) -> nn.Module:
    """Three blocks of 12 layers, k = 12: 1,019,722 parameters (wongpanich2020 writes of 9 million).

    Dropout 0.2 as its authors use it without augmentation of the data.
    """
    if (depth - 4) % 3 or depth < 7:
        raise ConfigError(f"the depth of a DenseNet must be 4 more than a multiple of 3, got {depth}")
    layers_each = (depth - 4) // 3
    channels = 16
    layers: list[nn.Module] = [nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)]
    for block in range(3):
        for _ in range(layers_each):
            layers.append(DenseLayer(channels, growth, dropout))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if block < 2:
            layers += [nn.Conv2d(channels, channels, 1, bias=False), nn.Dropout(dropout), nn.AvgPool2d(2)]
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return made
