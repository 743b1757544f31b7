"""Vectors that all workers of one machine read and write in place: the shared one, and those that pairs average."""

from mmap import mmap
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from offbeat.engines.real.memory_slots import PAGE, rounded

_LINE = 8  # numbers set aside for each worker: those of two are never in one line of a cache
PROBES = 64  # components of a shared vector whose additions are counted


class Extent(NamedTuple):
    """What the layout of this memory follows from."""

    workers: int
    vector: int  # elements
    dtype: str  # float32 or float64

    @property
    def nbytes(self) -> int:
        return int(self.vector * np.dtype(self.dtype).itemsize)

    @property
    def size(self) -> int:
        """Bytes in all."""
        numbers = rounded(self.workers * _LINE * 8, PAGE) + rounded((2 * self.workers + 1) * PROBES * 8, PAGE)
        return numbers + (1 + self.workers) * rounded(self.nbytes, PAGE)


class VectorsForAll:
    """One section of shared memory. Numbers of each worker, written by itself unless said otherwise:

    | `adds` | to the shared vector, finished |
    | `placed` | 1 when its parameters lie where peers average them (the server clears it when the worker is lost) |
    | `mixed` | by whoever averages, under the worker's lock: averages made of them |

    Locks are bytes of the file behind it, `fd`.
    """

    def __init__(self, memory: mmap, at: int, fd: int, extent: Extent) -> None:
        self.fd, self.extent, self._map = fd, extent, memory
        w = extent.workers
        self.adds, self.placed, self.mixed = np.frombuffer(memory, np.int64, w * _LINE, at).reshape(w, _LINE).T[:3]
        at += rounded(w * _LINE * 8, PAGE)
        self.probes = np.frombuffer(memory, np.float64, w * 2 * PROBES, at).reshape(w, 2, PROBES)
        self.probe_start = np.frombuffer(memory, np.float64, PROBES, at + w * 2 * PROBES * 8)
        self.probed = slice(0, extent.vector, max(1, extent.vector // PROBES))
        at += rounded((2 * w + 1) * PROBES * 8, PAGE)
        each = rounded(extent.nbytes, PAGE)
        self.shared = self._vector(at)
        self._own = [self._vector(at + (1 + i) * each) for i in range(w)]

    def _vector(self, at: int) -> Tensor:
        return torch.frombuffer(self._map, dtype=getattr(torch, self.extent.dtype), count=self.extent.vector, offset=at)

    def own(self, i: int) -> Tensor:
        """Worker i's parameters, where peers average them."""
        return self._own[i]

    def share(self, x: Tensor, version: int) -> None:
        """By the server, before any worker: the shared vector, and how many additions are in it."""
        self.shared.copy_(x)
        self.adds[:] = 0
        self.adds[0] = version
        self.probes[:] = 0
        start = self.shared[self.probed][:PROBES].double().numpy()
        self.probe_start[: len(start)] = start

    def as_it_is(self) -> tuple[Tensor, int]:
        """A copy of the shared vector, and the number of additions to it."""
        return self.shared.clone(), int(self.adds.sum())

    def lost_share(self) -> float | None:
        """Of what was added to the shared vector, how much is not there: on some components, where sums were kept.

        Rounding makes it a little more than nothing where nothing was lost.
        """
        wanted = self.probes.sum(0)
        if not wanted[1].any():
            return None
        now = self.shared[self.probed][:PROBES].double().numpy()
        n = len(now)
        return float(abs(self.probe_start[:n] + wanted[0, :n] - now).sum() / wanted[1, :n].sum())
