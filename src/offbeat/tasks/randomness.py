"""Dropout and other randomness inside a model, keyed per mini-batch instead of drawn from a process-global generator.

Threads share torch's default generator, so a model that draws from it would depend on the order of threads. A
torch-function mode, which is local to a thread, hands the random functions a generator of the batch's own: the same
stream, and the same bits, as seeding the default generator with the key before the batch.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_GLOBAL = Lock()

_TAKES_GENERATOR = {
    torch.rand,
    torch.randn,
    torch.randint,
    torch.randperm,
    torch.normal,
    torch.bernoulli,
    torch.multinomial,
    torch.poisson,
    Tensor.bernoulli,
    Tensor.bernoulli_,
    Tensor.uniform_,
    Tensor.normal_,
    Tensor.exponential_,
    Tensor.random_,
    Tensor.multinomial,
    Tensor.cauchy_,
    Tensor.log_normal_,
    Tensor.geometric_,
}


def _dropout(
    generator: torch.Generator, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * torch.zeros_like(x)
    mask = torch.empty_like(x).bernoulli_(1 - p, generator=generator).div_(1 - p)
    return x.mul_(mask) if inplace else x * mask


def _channel_dropout(
    generator: torch.Generator, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * torch.zeros_like(x)
    shape = (*x.shape[:2], *(1,) * (x.dim() - 2))
    mask = x.new_empty(shape).bernoulli_(1 - p, generator=generator).div_(1 - p)
    return x.mul_(mask) if inplace else x * mask


def _dropout3d(generator: torch.Generator, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if x.dim() == 4:  # one sample, as torch takes it
        return _channel_dropout(generator, x.unsqueeze(0), *args, **kwargs).squeeze(0)
    return _channel_dropout(generator, x, *args, **kwargs)


_REPLACED: dict[Any, Callable[..., Tensor]] = {
    F.dropout: _dropout,
    F.dropout2d: _channel_dropout,
    F.dropout3d: _dropout3d,
}


class Keyed(TorchFunctionMode):
    """Gives the random functions of torch a generator of their own."""

    def __init__(self, key: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(key)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _REPLACED:
            return _REPLACED[func](self._generator, *args, **kwargs)
        if func in _TAKES_GENERATOR and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self._generator}
        return func(*args, **kwargs)


def _global_state() -> tuple[Any, ...]:
    legacy = np.random.get_state(legacy=True)
    return (torch.random.get_rng_state().numpy().tobytes(), random.getstate(), legacy[1].tobytes(), legacy[2])  # type: ignore[index]


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Seeds every global generator (torch, numpy, random) for the time of one batch, one thread at a time."""
    with _GLOBAL:
        before = (torch.random.get_rng_state(), np.random.get_state(), random.getstate())
        torch.manual_seed(key)
        np.random.seed(key % 2**32)
        random.seed(key)
        try:
            yield
        finally:
            torch.random.set_rng_state(before[0])
            np.random.set_state(before[1])
            random.setstate(before[2])


def moves_global_generator(run: Callable[[], object]) -> bool:
    """Whether a call draws from torch's, numpy's or Python's process-global generator."""
    with _GLOBAL:
        kept = (torch.random.get_rng_state(), np.random.get_state(), random.getstate())
        before = _global_state()
        try:
            run()
            return _global_state() != before
        finally:
            torch.random.set_rng_state(kept[0])
            np.random.set_state(kept[1])
            random.setstate(kept[2])
