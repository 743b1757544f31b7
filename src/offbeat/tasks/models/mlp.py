"""Fully connected networks of any depth at a given number of parameters; with no hidden layer, logistic regression."""

from math import isqrt, prod

from torch import nn

from offbeat.core.errors import ConfigError
from offbeat.tasks.models import Shape


def parameters(inputs: int, classes: int, depth: int, width: int) -> int:
    """Of `depth` hidden layers: (inputs + 1) w + (depth - 1) (w + 1) w + (w + 1) classes."""
    return (inputs + 1) * width + (depth - 1) * (width + 1) * width + (width + 1) * classes


def solved_width(inputs: int, classes: int, depth: int, wanted: int) -> int:
    """The width whose number of parameters is nearest to `wanted`: a quadratic in w, (d-1) w^2 + b w + classes."""
    a, b = depth - 1, inputs + 1 + depth - 1 + classes
    below = (wanted - classes) // b if a == 0 else (isqrt(max(0, b * b + 4 * a * (wanted - classes))) - b) // (2 * a)
    candidates = [w for w in (below - 1, below, below + 1) if w >= 1] or [1]
    return min(candidates, key=lambda w: abs(parameters(inputs, classes, depth, w) - wanted))


def mlp(shape: Shape = (1, 28, 28), classes: int = 10, depth: int = 2, parameters: int = 100_000) -> nn.Module:
    """`depth` hidden layers of equal width with ReLU, as wide as the number of parameters allows.

    For wongpanich2020, Figure 1: deep against wide networks of the same size.
    """
    inputs = prod(shape)
    if depth < 1:
        raise ConfigError(f"depth must be at least 1 hidden layer, got {depth}")
    if parameters < (least := inputs + 1 + 2 * (depth - 1) + 2 * classes):
        raise ConfigError(f"{depth} hidden layers need at least {least:,} parameters, got {parameters:,}")
    width = solved_width(inputs, classes, depth, parameters)
    layers: list[nn.Module] = [nn.Flatten()]
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def logistic(shape: Shape = (1, 28, 28), classes: int = 10) -> nn.Module:
    """Multinomial logistic regression, starting from zero: convex, with 7,850 parameters on MNIST."""
    layer = nn.Linear(prod(shape), classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)
