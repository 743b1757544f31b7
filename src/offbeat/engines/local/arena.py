"""All memory that the processes of one run share: one anonymous file, mapped by everybody, named nowhere.

The kernel frees it with the last process that maps it, however that process ends: nothing can leak. The file is
sparse: what is never written costs nothing. No lock is needed: a number has one writer at a time, which is said where
it is not the worker it belongs to.
"""

import mmap
import os
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from offbeat.core.errors import ConfigError
from offbeat.core.memory import require
from offbeat.core.solver import Shown
from offbeat.core.sparse import RowTable
from offbeat.core.task import Buffers
from offbeat.core.units import format_size
from offbeat.engines.real.board import HEADER, REAL, WHOLE, Board
from offbeat.engines.real.memory_slots import PAGE, Slots, rounded, slot_size
from offbeat.engines.real.shared_log import SharedLog
from offbeat.engines.real.vectors_for_all import Extent, VectorsForAll

_WEIGHT = 64  # bytes for the weight beside published parameters
MAILBOXES = 4  # messages to peers that one worker may have under way
_LOG = 128 << 10  # bytes for what a worker has announced and the server has not read yet,
_KEPT = 1 << 20  # and for what the server has written down and the control has not taken over yet


class Shape(NamedTuple):
    """What the layout of the shared memory follows from."""

    workers: int
    vector: int  # elements
    dtype: str  # float32 or float64
    buffers: int  # bytes of one worker's buffers (BatchNorm's statistics)

    @property
    def nbytes(self) -> int:
        return int(self.vector * np.dtype(self.dtype).itemsize)


def shape_of(workers: int, x: Tensor, buffers: Buffers) -> Shape:
    size = sum(rounded(b.numel() * b.element_size(), 64) for b in (buffers or {}).values())
    return Shape(workers, x.numel(), str(x.dtype).removeprefix("torch."), size)


class Arena(Board):
    """The shared memory of a run: the board, and places for vectors.

    Further numbers of each worker, written by itself unless said otherwise:

    | `half` | which half of its published block is valid | `shown` | times it published |
    | `sums` | all-reduces of everybody that it gave a vector to |

    `vectors` are those that all read and write in place.
    `unread[i, k, j]` is 1 while message k of worker i waits for worker j: set by i, cleared by j, or by the server when
    j is lost. `logs[i]` is what worker i announces to the server, `record` what the server writes down for the control,
    which outlives it.
    """

    def __init__(self, fd: int, shape: Shape) -> None:
        self.fd, self.shape = fd, shape
        w, n = shape.workers, shape.nbytes
        at = 0

        def section(size: int) -> int:
            nonlocal at
            start, at = at, at + rounded(size, PAGE)
            return start

        header, whole, real = section(HEADER * 8), section(w * WHOLE * 8), section(w * REAL * 8)
        unread, logs, kept = section(w * MAILBOXES * w * 8), section(w * _LOG), section(_KEPT)
        extent = Extent(w, shape.vector, shape.dtype)
        vectors = section(extent.size)
        self._slot = slot_size(n)
        self._published = _WEIGHT + rounded(n, 64) + shape.buffers
        snapshot = section(n)
        self._push, self._pull, self._own = (section(w * self._slot) for _ in range(3))
        self._publish = section(w * 2 * self._published)
        self._mail = section(w * MAILBOXES * self._slot)
        self._summands = section(w * 2 * self._slot)
        self.size = at
        if os.fstat(fd).st_size < at:
            os.ftruncate(fd, at)
        self.map = mmap.mmap(fd, at)
        self.slots = Slots(self.map, shape.vector, n)
        of_run = np.frombuffer(self.map, np.int64, HEADER, header)
        ints = np.frombuffer(self.map, np.int64, w * WHOLE, whole).reshape(w, WHOLE)
        floats = np.frombuffer(self.map, np.float64, w * REAL, real).reshape(w, REAL)
        super().__init__(of_run, ints, floats)
        self.half, self.shown, self.sums = ints.T[12:15]
        self.unread = np.frombuffer(self.map, np.int64, w * MAILBOXES * w, unread).reshape(w, MAILBOXES, w)
        everything = memoryview(self.map)
        self.logs = [SharedLog(everything[logs + i * _LOG : logs + (i + 1) * _LOG]) for i in range(w)]
        self.record = SharedLog(everything[kept : kept + _KEPT])
        self.vectors = VectorsForAll(self.map, vectors, fd, extent)
        self._written: dict[int, RowTable] = {}  # by a worker that publishes a RowTable: what each half holds
        self._snapshot = self._vector(snapshot)

    def _vector(self, offset: int, size: int | None = None) -> Tensor:
        size, dtype = self.shape.vector if size is None else size, getattr(torch, self.shape.dtype)
        if size > self.slots.most:
            raise ConfigError(f"a vector of {size} elements does not fit its slot of shared memory")
        return self.slots.view(offset, dtype, size)

    # -- messages -----------------------------------------------------------------------------------------------

    def push_slot(self, i: int) -> int:
        """Where worker i writes and the server reads."""
        return self._push + i * self._slot

    def pull_slot(self, i: int) -> int:
        """Where the server writes and worker i alone reads."""
        return self._pull + i * self._slot

    def mailbox(self, i: int, k: int) -> int:
        """Where worker i writes its k-th message under way to peers."""
        return self._mail + (i * MAILBOXES + k) * self._slot

    # -- what a worker shows of itself --------------------------------------------------------------------------

    def publish(self, i: int, shown: Shown | None, buffers: Buffers) -> None:
        """Written beside the valid half, which then changes over."""
        half = 1 - int(self.half[i])
        at = self._publish + (2 * i + half) * self._published
        x = None if shown is None else shown.x
        if shown is not None:
            np.frombuffer(self.map, np.float64, 1, at)[0] = shown.weight
        at += _WEIGHT
        if isinstance(x, RowTable):
            self._publish_rows(half, self._vector(at).view(x.shape), x)
        elif x is not None:
            self._vector(at).copy_(x)
        at += rounded(self.shape.nbytes, 64)
        for b in (buffers or {}).values():
            self.slots.view(at, b.dtype, b.numel()).copy_(b.reshape(-1))
            at += rounded(b.numel() * b.element_size(), 64)
        self.half[i] = half
        self.shown[i] += x is not None

    def _publish_rows(self, half: int, there: Tensor, x: RowTable) -> None:
        """Of a RowTable only the rows that changed since this half was written, once it was written by this process."""
        before = self._written.get(half)
        if before is not None and before.array is x.array:
            rows = x.changed(before)
            there.index_copy_(0, rows, x.take(rows))
        else:
            there.copy_(x.dense().view(x.shape))
        self._written[half] = x

    def published(self, i: int) -> Shown | None:
        if not self.shown[i]:
            return None
        at = self._publish + (2 * i + int(self.half[i])) * self._published
        return Shown(self._vector(at + _WEIGHT).clone(), float(np.frombuffer(self.map, np.float64, 1, at)[0]))

    def published_buffers(self, i: int, like: Buffers) -> Buffers:
        if like is None:
            return None
        at = self._publish + (2 * i + int(self.half[i])) * self._published + _WEIGHT + rounded(self.shape.nbytes, 64)
        found = {}
        for name, b in like.items():
            found[name] = self.slots.view(at, b.dtype, b.numel()).clone().reshape(b.shape)
            at += rounded(b.numel() * b.element_size(), 64)
        return found

    def set_snapshot(self, x: Tensor) -> None:
        self._snapshot.copy_(x)

    def snapshot(self) -> Tensor:
        return self._snapshot.clone()

    # -- all-reduce ---------------------------------------------------------------------------------------------

    def own(self, i: int, size: int | None = None) -> Tensor:
        """The result of an all-reduce of worker i's group."""
        return self._vector(self.own_slot(i), size)

    def own_slot(self, i: int) -> int:
        return self._own + i * self._slot

    def given(self, i: int, k: int, size: int) -> Tensor:
        """What worker i gave to an all-reduce. One of everybody uses the places 0 and 1 in turn, because a slow worker
        may still read the last one; one of a group uses place 2, which is the slot of its messages to the server."""
        return self._vector(self.push_slot(i) if k == 2 else self._summands + (2 * i + k) * self._slot, size)


def create(shape: Shape) -> Arena:
    """New shared memory, if the machine has it."""
    w, n = shape.workers, shape.nbytes
    needed = (4 * w + 3) * n + w * 2 * shape.buffers  # shared: slots in use; private vectors come on top
    needed += (4 * w + 6) * n
    require(needed, f"{w} workers with vectors of {format_size(n)}", "use fewer workers")
    fd = os.memfd_create("offbeat", os.MFD_CLOEXEC)
    try:
        return Arena(fd, shape)
    except (OSError, ValueError) as e:
        os.close(fd)
        raise ConfigError(f"cannot get shared memory for {w} workers: {e}") from None
