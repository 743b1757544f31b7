"""A quadratic with known answers: f(x) = 1/2 sum_j h_j (x_j - x*_j)^2, with additive gradient noise."""

from math import isfinite
from typing import Any

import torch

from offbeat.core.effects import Gradient
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Indices
from offbeat.core.layout import Layout
from offbeat.core.task import Mapper, Point

_LARGEST = 10**8  # 800 MB a vector


class Quadratic:
    """Curvatures h_j are spaced evenly on a log scale between `curvature / condition` and `curvature`.

    The minimiser is x* = 0 and the start is x_0 = (1, ..., 1), whatever the seed, so that closed forms hold. A batch
    of n samples adds N(0, noise^2 / n) to each component of the gradient.
    """

    size = None

    def __init__(
        self, dim: int = 10, *, curvature: float = 1.0, condition: float = 10.0, noise: float = 0.0, batch: int = 1
    ) -> None:
        numbers = (curvature, condition, noise)
        whole = isinstance(dim, int) and not isinstance(dim, bool) and 1 <= dim <= _LARGEST
        finite = all(isinstance(v, int | float) and isfinite(v) for v in numbers)
        if not (whole and finite and curvature > 0 and condition >= 1 and noise >= 0):
            raise ConfigError(
                f"quadratic needs a whole dim from 1 to {_LARGEST:,}, and finite curvature > 0, condition >= 1 and "
                f"noise >= 0, got {dim}, {curvature}, {condition}, {noise}"
            )
        self.name = "quadratic"
        self.h = (
            curvature * torch.logspace(-1, 0, dim, base=condition, dtype=torch.float64)
            if dim > 1
            else (torch.tensor([curvature], dtype=torch.float64))
        )
        self.noise, self.batch = noise, batch
        self.layout = Layout.of([("x", (dim,))])
        self.nbytes = 8 * dim

    def init(self, seed: int) -> Point:
        return Point(torch.ones_like(self.h))

    def gradient(self, point: Point, batch: Indices | None, key: int) -> Gradient:
        x = point.x
        g = self.h * x
        if self.noise:
            noise = torch.randn(len(x), generator=torch.Generator().manual_seed(key), dtype=x.dtype)
            g = g + noise * (self.noise / self.batch**0.5)
        return Gradient(g, self.loss(x), self.batch, norm=float(g.norm()))

    def evaluate(self, point: Point, mapper: Mapper) -> dict[str, float]:
        return {"loss": self.loss(point.x), "distance": float(point.x.norm())}

    def loss(self, x: Any) -> float:
        return float(0.5 * (self.h * x * x).sum())

    def describe(self) -> dict[str, Any]:
        spread = {"largest_curvature": float(self.h.max()), "smallest_curvature": float(self.h.min())}
        return {"task": self.name, "parameters": self.layout.size, **spread, "noise": self.noise, "batch": self.batch}
