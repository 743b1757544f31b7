"""Tensors of a message on their way between machines: frames beside it, or parts that come after it."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


class WrongMessageError(Exception):
    """A message that is refused, and why."""


class Frames:
    """Places of a message's tensors: the frames beside it. A slot is the list of them."""

    def write(self, slot: list[Any], tensors: Mapping[str, Tensor]) -> list[Any]:
        parts = []
        for name, t in tensors.items():
            flat = t.detach().contiguous().reshape(-1)
            parts.append((name, len(slot), str(t.dtype).removeprefix("torch."), tuple(t.shape)))
            slot.append(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
        return parts

    def read(self, slot: list[Any], parts: list[Any]) -> dict[str, Tensor]:
        """In memory of our own, and aligned: sums could have other bits otherwise."""
        found = {}
        for name, k, dtype, shape in parts:
            if dtype not in DTYPES or not 0 <= k < len(slot) or any(n < 0 for n in shape):
                raise WrongMessageError(f"it has no tensor {name!r} of {dtype}")
            kind, size = getattr(torch, dtype), len(slot[k])
            if prod(shape) * kind.itemsize != size:
                raise WrongMessageError(f"tensor {name!r} has {size} bytes for shape {tuple(shape)} of {dtype}")
            found[name] = _own(slot[k]).view(kind).reshape(shape)
        return found


class IncomingParts:
    """Tensors that come piece by piece: each is put where it belongs while the next is under way."""

    def __init__(self, sizes: list[int]) -> None:
        if any(size < 0 for size in sizes):
            raise WrongMessageError("its frames are not as long as it says")
        self.tensors: list[Any] = [torch.empty(size, dtype=torch.uint8).numpy() for size in sizes]  # aligned
        self._missing = deque(t for t in self.tensors if len(t))

    def take(self, pieces: Sequence[Any]) -> bool:
        """Whether that was the last."""
        for piece in pieces:
            source = np.frombuffer(piece, np.uint8)
            if not self._missing or not 0 < len(source) <= len(self._missing[0]):
                raise WrongMessageError("its parts are not as long as it says")
            rest = self._missing.popleft()
            rest[: len(source)] = source
            if len(source) < len(rest):
                self._missing.appendleft(rest[len(source) :])
        return not self._missing


def _own(frame: Any) -> Tensor:
    """Bytes in memory of our own: a frame is copied; what came in parts is that already."""
    if isinstance(frame, np.ndarray):
        return torch.from_numpy(frame)
    source = np.frombuffer(frame, np.uint8)
    made = torch.empty(len(source), dtype=torch.uint8)
    made.numpy()[:] = source
    return made
