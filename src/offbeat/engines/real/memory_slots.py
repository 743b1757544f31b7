"""Tensors of messages in memory that two processes share: one writes them into a slot, the other copies them out."""

from collections.abc import Mapping
from math import prod
from mmap import mmap
from typing import Any

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError
from offbeat.core.units import format_size

PAGE = 4096
_TENSORS_PER_MESSAGE = 8  # how many vectors of the parameters' size a message may hold
_ALIGNED = 64


class Slots:
    """`Places` of equal size in one mapping; a slot is known by where it begins. Nobody waits here: a slot is written
    again only when the other side is known to have read it."""

    def __init__(self, memory: mmap, vector: int, nbytes: int) -> None:
        """`vector`: how many elements the parameters have; `nbytes`: what they take."""
        self._map, self._vector = memory, vector
        self.size = slot_size(nbytes)
        self.most = _TENSORS_PER_MESSAGE * vector
        self._views: dict[tuple[int, torch.dtype], Tensor] = {}

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        return sum(rounded(t.numel() * t.element_size(), _ALIGNED) for t in tensors.values()) <= self.size

    def write(self, slot: int, tensors: Mapping[str, Tensor]) -> list[Any]:
        """Copies tensors into a slot; says where each lies."""
        parts: list[Any] = []
        at = 0
        for name, t in tensors.items():
            size = t.numel() * t.element_size()
            if at + size > self.size:
                raise ConfigError(
                    f"a message of {format_size(at + size)} does not fit its slot of shared memory "
                    f"({format_size(self.size)}): up to {_TENSORS_PER_MESSAGE} vectors a message"
                )
            if size:
                self.view(slot + at, t.dtype, t.numel()).copy_(t.detach().reshape(-1))
            parts.append((name, at, str(t.dtype).removeprefix("torch."), tuple(t.shape)))
            at += rounded(size, _ALIGNED)
        return parts

    def read(self, slot: int, parts: list[Any]) -> dict[str, Tensor]:
        """Private copies of a slot's tensors: what is received stays as it was, whatever is written next."""
        found = {}
        for name, offset, dtype, shape in parts:
            kind, count = getattr(torch, dtype), prod(shape)
            source = self.view(slot + offset, kind, count) if count else torch.empty(0, dtype=kind)
            found[name] = source.clone().reshape(shape)
        return found

    def view(self, offset: int, dtype: torch.dtype, count: int) -> Tensor:
        """The memory itself."""
        if count != self._vector:
            return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset)
        found = self._views.get((offset, dtype))  # whole vectors lie in few places, and are looked for all the time
        if found is None:
            found = self._views[offset, dtype] = torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset)
        return found


def slot_size(nbytes: int) -> int:
    """Of a slot, for vectors of so many bytes."""
    return rounded(_TENSORS_PER_MESSAGE * nbytes + 65536, PAGE)


def bytes_of(parts: list[Any]) -> int:
    """Of the tensors that were written to a slot."""
    return sum(prod(shape) * getattr(torch, dtype).itemsize for _, _, dtype, shape in parts)


def rounded(size: int, to: int) -> int:
    return -(-size // to) * to
