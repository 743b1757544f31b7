"""Training loops written by hand: one tensor a parameter, a torch optimizer, a seed before every batch."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
Batch = tuple[Tensor, Tensor]
Optimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.requires_grad])


def gradients(module: nn.Module, loss: Loss, batch: Batch, key: int) -> list[Tensor]:
    """The gradient of each parameter, with torch's own generator seeded by the batch's key."""
    torch.manual_seed(key)
    module.train()
    module.zero_grad()
    loss(module(batch[0]), batch[1]).backward()
    return [p.grad.clone() for p in module.parameters() if p.requires_grad]


def train(module: nn.Module, loss: Loss, optimizer: Optimizer, batches: Sequence[Batch], keys: Sequence[int]) -> Tensor:
    """The loop of every tutorial. Returns the flat parameters at its end."""
    opt = optimizer([p for p in module.parameters() if p.requires_grad])
    for batch, key in zip(batches, keys, strict=True):
        grads = gradients(module, loss, batch, key)
        for p, g in zip(module.parameters(), grads, strict=True):
            p.grad = g
        opt.step()
    return flat(module)


def synchronous(
    module: nn.Module,
    loss: Loss,
    optimizer: Optimizer,
    rounds: Sequence[Sequence[Batch]],
    keys: Sequence[Sequence[int]],
) -> Tensor:
    """rounds[k][i] is worker i's batch in step k; gradients are summed in worker order, then divided by W."""
    opt = optimizer(list(module.parameters()))
    for batches, seeds in zip(rounds, keys, strict=True):
        total: list[Tensor] | None = None
        for batch, key in zip(batches, seeds, strict=True):
            g = gradients(module, loss, batch, key)
            total = g if total is None else [a + b for a, b in zip(total, g, strict=True)]
        assert total is not None
        for p, g in zip(module.parameters(), total, strict=True):
            p.grad = g / len(batches)
        opt.step()
    return flat(module)


class Recipe:
    """torch.optim's rules in numpy, one line a symbol (pytorch.org/docs, "Algorithm" boxes)."""

    def __init__(self, kind: str, lr: float, mu: float = 0.9) -> None:
        self.kind, self.lr, self.mu, self.t = kind, lr, mu, 0
        self.v: Any = None
        self.m: Any = 0.0
        self.s: Any = 0.0

    def step(self, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        self.t += 1
        lr, t = self.lr, self.t
        if self.kind == "sgd":
            return x - lr * g
        if self.kind in ("momentum", "nesterov"):
            self.v = g if self.v is None else self.mu * self.v + g
            return x - lr * (self.v if self.kind == "momentum" else g + self.mu * self.v)
        if self.kind in ("adam", "adamw"):
            if self.kind == "adamw":
                x = x - lr * 0.01 * x
            self.m = 0.9 * self.m + 0.1 * g
            self.s = 0.999 * self.s + 0.001 * g**2
            return x - lr * (self.m / (1 - 0.9**t)) / (np.sqrt(self.s / (1 - 0.999**t)) + 1e-8)
        if self.kind == "adagrad":
            self.s = self.s + g**2
            return x - lr * g / (np.sqrt(self.s) + 1e-10)
        assert self.kind == "rmsprop"
        self.s = 0.99 * self.s + 0.01 * g**2
        return x - lr * g / (np.sqrt(self.s) + 1e-8)
