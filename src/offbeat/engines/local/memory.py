"""All memory that the processes of one run share: one anonymous file, mapped by everybody, named nowhere.

The kernel frees it with the last process that maps it, however that process ends: nothing can leak. The file is
sparse: what is never written costs nothing. Every number below has exactly one writer, so no lock is needed.
"""

import ctypes
import json
import mmap
import os
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from offbeat.core.errors import ConfigError
from offbeat.core.sparse import Table
from offbeat.core.task import Buffers
from offbeat.core.units import format_size

_PAGE = 4096
_TENSORS_PER_MESSAGE = 8  # how many vectors of the parameters' size a message may hold
_NOTE = 1024  # bytes for numbers beside published parameters
MAILBOXES = 4  # messages to peers that one worker may have under way
RING, RECORD = 1024, 16  # announcements of a worker that the server has not read yet, and the numbers of each
PROBES = 64  # components of a shared vector whose additions are counted


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
    size = sum(_round(b.numel() * b.element_size(), 64) for b in (buffers or {}).values())
    return Shape(workers, x.numel(), str(x.dtype).removeprefix("torch."), size)


class Arena:
    """The shared memory of a run, as arrays and tensors.

    Per worker, written by the worker alone unless said otherwise:

    | `draws` | mini-batches taken; outlives the worker | `samples` | processed |
    | `job` | 1 while it computes a gradient | `job_version`, `job_draw`, `job_source`, `job_started` | of which |
    | `replies` | answers received | `half` | which half of its published block is valid |
    | `head` | announcements written to its ring | `tail` | by the server: announcements read |
    | `adds` | to the shared vector, finished | `announced` | samples of its own gradients, applied |
    | `shown` | times it published | `alive` | by the server | `mixed` | under the worker's lock: averages made |
    | `sums` | all-reduces of everybody that it gave a vector to |
    | `computing`, `delayed`, `communicating` | seconds | `cancel` | by the server: 1 + replies before the one |
    """

    def __init__(self, fd: int, shape: Shape) -> None:
        self.fd, self.shape = fd, shape
        w, n = shape.workers, shape.nbytes
        at = 0

        def section(size: int) -> int:
            nonlocal at
            start, at = at, at + _round(size, _PAGE)
            return start

        header, whole, real = section(64 * 8), section(w * 24 * 8), section(w * 16 * 8)
        unread, rings = section(w * MAILBOXES * w * 8), section(w * RING * RECORD * 8)
        probes = section(w * 2 * PROBES * 8)
        self._slot = _round(_TENSORS_PER_MESSAGE * n + 65536, _PAGE)
        self._published = _NOTE + _round(n, 64) + shape.buffers
        snapshot, shared = section(n), section(n)
        self._push, self._pull, self._own = (section(w * self._slot) for _ in range(3))
        self._publish = section(w * 2 * self._published)
        self._mail = section(w * MAILBOXES * self._slot)
        self._summands = section(w * 2 * self._slot)
        self.size = at
        if os.fstat(fd).st_size < at:
            os.ftruncate(fd, at)
        self.map = mmap.mmap(fd, at)
        self._views: dict[tuple[int, torch.dtype], Tensor] = {}
        self.header = np.frombuffer(self.map, np.int64, 64, header)
        self.paused_ns = self.header[0:1]  # by the server: how long the run's clock stood still
        self.work = self.header[1:2]  # by the server: samples processed by everybody
        self.updates = self.header[2:3]  # by the server
        limits = np.frombuffer(self.map, np.float64, 64, header)
        self.loss_limit = limits[8:9]  # by the server: a loss above it is shown to the watcher
        ints = np.frombuffer(self.map, np.int64, w * 24, whole).reshape(w, 24)
        self.draws, self.samples, self.job, self.job_version, self.job_draw, self.job_source = ints.T[:6]
        self.replies, self.half, self.cancel, self.head, self.tail, self.adds, self.announced = ints.T[6:13]
        self.shown, self.alive, self.mixed, self.sums = ints.T[13:17]
        floats = np.frombuffer(self.map, np.float64, w * 16, real).reshape(w, 16)
        self.job_started, self.computing, self.delayed, self.communicating, self.locked = floats.T[:5]
        self.unread = np.frombuffer(self.map, np.int64, w * MAILBOXES * w, unread).reshape(w, MAILBOXES, w)
        self.rings = np.frombuffer(self.map, np.float64, w * RING * RECORD, rings).reshape(w, RING, RECORD)
        self.probes = np.frombuffer(self.map, np.float64, w * 2 * PROBES, probes).reshape(w, 2, PROBES)
        self._written: dict[int, Table] = {}  # by a worker that publishes a Table: what each half holds
        self.snapshot, self.shared = self._vector(snapshot), self._vector(shared)

    def _vector(self, offset: int, size: int | None = None) -> Tensor:
        size, dtype = self.shape.vector if size is None else size, getattr(torch, self.shape.dtype)
        if size > _TENSORS_PER_MESSAGE * self.shape.vector:
            raise ConfigError(f"a vector of {size} elements does not fit its slot of shared memory")
        return self._view(offset, dtype, size)

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

    def write(self, slot: int, tensors: Mapping[str, Tensor]) -> list[Any]:
        """Copies tensors into a slot; says where each lies."""
        parts: list[Any] = []
        at = 0
        for name, t in tensors.items():
            size = t.numel() * t.element_size()
            if at + size > self._slot:
                raise ConfigError(
                    f"a message of {format_size(at + size)} does not fit its slot of shared memory "
                    f"({format_size(self._slot)}): up to {_TENSORS_PER_MESSAGE} vectors a message"
                )
            if size:
                self._view(slot + at, t.dtype, t.numel()).copy_(t.detach().reshape(-1))
            parts.append((name, at, str(t.dtype).removeprefix("torch."), tuple(t.shape)))
            at += _round(size, 64)
        return parts

    def read(self, slot: int, parts: list[Any]) -> dict[str, Tensor]:
        """Private copies of a slot's tensors: what is received stays as it was, whatever is written next."""
        found = {}
        for name, offset, dtype, shape in parts:
            kind, count = getattr(torch, dtype), prod(shape)
            source = self._view(slot + offset, kind, count) if count else torch.empty(0, dtype=kind)
            found[name] = source.clone().reshape(shape)
        return found

    def _view(self, offset: int, dtype: torch.dtype, count: int) -> Tensor:
        if count != self.shape.vector:
            return torch.frombuffer(self.map, dtype=dtype, count=count, offset=offset)
        found = self._views.get((offset, dtype))  # whole vectors lie in few places, and are looked for all the time
        if found is None:
            found = self._views[offset, dtype] = torch.frombuffer(self.map, dtype=dtype, count=count, offset=offset)
        return found

    # -- what a worker shows of itself --------------------------------------------------------------------------

    def publish(self, i: int, x: Tensor | Table | None, numbers: Mapping[str, float], buffers: Buffers) -> None:
        """Written beside the valid half, which then changes over: a reader never sees half of it."""
        half = 1 - int(self.half[i])
        at = self._publish + (2 * i + half) * self._published
        note = json.dumps(numbers).encode().ljust(_NOTE)
        self.map[at : at + _NOTE] = note[:_NOTE]
        at += _NOTE
        if isinstance(x, Table):
            self._publish_rows(half, self._vector(at).view(x.shape), x)
        elif x is not None:
            self._vector(at).copy_(x)
        at += _round(self.shape.nbytes, 64)
        for b in (buffers or {}).values():
            self._view(at, b.dtype, b.numel()).copy_(b.reshape(-1))
            at += _round(b.numel() * b.element_size(), 64)
        self.half[i] = half
        self.shown[i] += x is not None

    def _publish_rows(self, half: int, there: Tensor, x: Table) -> None:
        """Of a Table only the rows that changed since this half was written, once it was written by this process."""
        before = self._written.get(half)
        if before is not None and before.array is x.array:
            rows = x.changed(before)
            there.index_copy_(0, rows, x.take(rows))
        else:
            there.copy_(x.dense().view(x.shape))
        self._written[half] = x

    def published(self, i: int) -> tuple[Tensor, dict[str, float]]:
        """The parameters that worker i last published, and the numbers beside them."""
        at = self._publish + (2 * i + int(self.half[i])) * self._published
        return self._vector(at + _NOTE).clone(), json.loads(self.map[at : at + _NOTE])

    def published_buffers(self, i: int, like: Buffers) -> Buffers:
        if like is None:
            return None
        at = self._publish + (2 * i + int(self.half[i])) * self._published + _NOTE + _round(self.shape.nbytes, 64)
        found = {}
        for name, b in like.items():
            found[name] = self._view(at, b.dtype, b.numel()).clone().reshape(b.shape)
            at += _round(b.numel() * b.element_size(), 64)
        return found

    # -- vectors in place ---------------------------------------------------------------------------------------

    def own(self, i: int, size: int | None = None) -> Tensor:
        """A vector of worker i: its parameters where peers average them, or the result of its group's all-reduce."""
        return self._vector(self.own_slot(i), size)

    def own_slot(self, i: int) -> int:
        return self._own + i * self._slot

    def given(self, i: int, k: int, size: int) -> Tensor:
        """What worker i gave to an all-reduce: of everybody, in turn at 0 and 1; of a group, at 2, in its slot."""
        return self._vector(self.push_slot(i) if k == 2 else self._summands + (2 * i + k) * self._slot, size)


def bytes_of(parts: list[Any]) -> int:
    """Of the tensors that were written to a slot."""
    return sum(prod(shape) * getattr(torch, dtype).itemsize for _, _, dtype, shape in parts)


def create(shape: Shape) -> Arena:
    """New shared memory, if the machine has it."""
    w, n = shape.workers, shape.nbytes
    needed = (4 * w + 3) * n + w * 2 * shape.buffers  # shared: slots in use; private vectors come on top
    needed += (4 * w + 6) * n
    available = available_bytes()
    if needed > available:
        raise ConfigError(
            f"{w} workers with vectors of {format_size(n)} need about {format_size(needed)} of memory, "
            f"but only {format_size(available)} are available: use fewer workers"
        )
    fd = os.memfd_create("offbeat", os.MFD_CLOEXEC)
    try:
        return Arena(fd, shape)
    except (OSError, ValueError) as e:
        os.close(fd)
        raise ConfigError(f"cannot get shared memory for {w} workers: {e}") from None


def available_bytes() -> int:
    """Memory that can still be had: the machine's, or what the control group leaves."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    limits = [int(found[1]) * 1024] if found else []
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            limits.append(int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no control groups here
    return min(limits, default=2**63)


def die_with_parent() -> None:
    """The kernel kills this process when the one that started it ends, even by SIGKILL."""
    pr_set_pdeathsig, sigkill = 1, 9
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, sigkill, 0, 0, 0)


def keep_freed_memory() -> None:
    """What is freed stays with the process, up to a limit, instead of going back to the kernel.

    By default every training step gives its activations back and takes them again: 600 page faults a step of LeNet-5,
    a tenth of its time.
    """
    m_trim_threshold, m_mmap_threshold = -1, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if mallopt is not None:
        mallopt(m_mmap_threshold, 32 << 20)
        mallopt(m_trim_threshold, 512 << 20)


def _round(size: int, to: int) -> int:
    return -(-size // to) * to
