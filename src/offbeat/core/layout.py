"""Parameters are one flat vector; the layout is its table of named, shaped segments."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Segment:
    """One named tensor inside the flat vector."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each named tensor lies in the flat vector."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, named: Iterable[tuple[str, Sequence[int]]]) -> "Layout":
        segments, start = [], 0
        for name, shape in named:
            segments.append(Segment(name, tuple(shape), start))
            start = segments[-1].stop
        return cls(tuple(segments))

    @property
    def size(self) -> int:
        return self.segments[-1].stop if self.segments else 0

    def views(self, flat: Tensor) -> list[Tensor]:
        """The segments as shaped views: writing to one writes to `flat`."""
        return [flat[s.start : s.stop].view(s.shape) for s in self.segments]

    @staticmethod
    def flatten(tensors: Iterable[Tensor]) -> Tensor:
        """A new flat vector; the inverse of `views`."""
        return torch.cat([t.reshape(-1) for t in tensors])
