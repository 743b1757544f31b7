"""Tensors of a message between processes of one machine: they lie in shared memory, and the message says where."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

from offbeat.engines.ray.frames import DTYPES, Frames, WrongMessageError
from offbeat.engines.real.memory_slots import Slots


class NearFrames(Frames):
    """`Places` for questions and answers: before a slot is written again, what it held was answered, and so was read.

    What does not fit its slot goes beside the message, as between machines.
    """

    def __init__(self, slots: Slots, out: int, into: int) -> None:
        self._slots, self._out, self._in = slots, out, into

    def write(self, slot: list[Any], tensors: Mapping[str, Tensor]) -> list[Any]:
        if not self._slots.fits(tensors):
            return super().write(slot, tensors)
        return [(name, [at], dtype, shape) for name, at, dtype, shape in self._slots.write(self._out, tensors)]

    def read(self, slot: list[Any], parts: list[Any]) -> dict[str, Tensor]:
        if not all(isinstance(part[1], list) for part in parts):
            return super().read(slot, parts)
        for name, (at,), dtype, shape in parts:
            if dtype not in DTYPES or at < 0 or any(n < 0 for n in shape):
                raise WrongMessageError(f"it has no tensor {name!r} of {dtype}")
            if at + prod(shape) * getattr(torch, dtype).itemsize > self._slots.size:
                raise WrongMessageError(f"tensor {name!r} lies outside its place in memory")
        return self._slots.read(self._in, [(name, at, dtype, shape) for name, (at,), dtype, shape in parts])
