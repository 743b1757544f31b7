"""Tasks that are random in every way a task can be: models that draw, data that draw, noise."""

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness import mlp_task, points
from offbeat.tasks.quadratic import Quadratic


class Gumbel(nn.Module):
    """Random numbers that cannot be keyed: they are drawn inside a function that takes no generator."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gumbel_softmax(x, tau=0.5) * x.shape[1]


class GumbelInTraining(Gumbel):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else torch.softmax(x, 1) * x.shape[1]


class Jitter(torch.utils.data.Dataset):
    """A data set that adds noise from numpy's and Python's global generators."""

    def __init__(self) -> None:
        self.x, self.y = points(200)

    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        noise = np.random.normal(size=12).astype(np.float32)  # the global one is the point
        return self.x[i] + torch.from_numpy(noise) * random.random(), self.y[i]


TASKS = {
    "plain": lambda: mlp_task(),
    "dropout": lambda: mlp_task(lambda: nn.Dropout(0.4)),
    "batch norm": lambda: mlp_task(lambda: nn.Dropout(0.2), norm=True),
    "alpha dropout": lambda: mlp_task(lambda: nn.AlphaDropout(0.3)),
    "gumbel": lambda: mlp_task(GumbelInTraining),
    "numpy data": lambda: mlp_task(train=Jitter()),
    "quadratic": lambda: Quadratic(5, noise=1.0),
}
