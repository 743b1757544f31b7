"""Memory that processes of one machine share in a run on a cluster: an anonymous file of the server's, named nowhere.

Who is on the server's machine opens it through the server's own descriptor, which only processes of the same user may.
The kernel frees it with the last process that maps it, however that process ends: nothing can stay behind.
"""

import contextlib
import mmap
import os
import secrets
from typing import NamedTuple

import numpy as np
from torch import Tensor

from offbeat.engines.ray.near_frames import NearFrames
from offbeat.engines.ray.ray_messages import Row
from offbeat.engines.ray.remote_board import REAL_NAMES, WHOLE_NAMES
from offbeat.engines.real.memory_slots import PAGE, Slots, rounded, slot_size
from offbeat.engines.real.shared_log import SharedLog
from offbeat.engines.real.vectors_for_all import Extent, VectorsForAll

_ROWS = 128 << 10  # bytes for what a worker has announced and the server has not read yet
_LOG = 4 << 20  # bytes for what the server has written down and the control has not taken over yet


class Handle(NamedTuple):
    """Where it is to be found, and how to know it."""

    pid: int
    fd: int
    token: bytes
    workers: int
    vector: int  # elements
    nbytes: int
    dtype: str  # float32 or float64


class CommonMemory:
    """What the server and its neighbours share:

    | `log` | what the server writes down, for the control: it outlives the server |
    | rows | each worker's numbers on the board, written by itself |
    | frames | vectors on their way: a slot to the server and one from it, for each worker |
    | `logs` | what a worker announces, where it would be lost with it otherwise: it has changed `vectors` already |
    | `vectors` | those that all workers read and write in place, where everybody is on this machine |
    """

    def __init__(self, fd: int, handle: Handle) -> None:
        self.handle, self._fd = handle, fd
        w, slot = handle.workers, slot_size(handle.nbytes)
        whole = rounded(PAGE + _LOG, PAGE)
        real = whole + rounded(w * len(WHOLE_NAMES) * 8, PAGE)
        self._slots_at = real + rounded(w * len(REAL_NAMES) * 8, PAGE)
        extent = Extent(w, handle.vector, handle.dtype)
        vectors_at = rounded(self._slots_at + 2 * w * slot, PAGE)
        logs = vectors_at + rounded(extent.size, PAGE)
        size = logs + w * _ROWS
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self._map = mmap.mmap(fd, size)
        self._slots = Slots(self._map, handle.vector, handle.nbytes)
        self.vectors = VectorsForAll(self._map, vectors_at, fd, extent)
        everything = memoryview(self._map)
        self.log = SharedLog(everything[PAGE : PAGE + _LOG])
        self.logs = [SharedLog(everything[logs + i * _ROWS : logs + (i + 1) * _ROWS]) for i in range(w)]
        self._whole = np.frombuffer(self._map, np.int64, w * len(WHOLE_NAMES), whole).reshape(w, -1)
        self._real = np.frombuffer(self._map, np.float64, w * len(REAL_NAMES), real).reshape(w, -1)

    @property
    def token(self) -> bytes:
        return self._map[: len(self.handle.token)]

    @token.setter
    def token(self, value: bytes) -> None:
        self._map[: len(value)] = value

    def close(self) -> None:
        """By the server: nobody else can open it any more."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close

    def row(self, worker: int) -> Row:
        return self._whole[worker].tolist(), self._real[worker].tolist()

    def set_row(self, worker: int, row: Row) -> None:
        self._whole[worker], self._real[worker] = row

    def frames(self, worker: int, *, at_server: bool) -> NearFrames:
        """The two ways of a line: what one end writes, the other reads."""
        to_server = self._slots_at + 2 * worker * self._slots.size
        from_server = to_server + self._slots.size
        out, into = (from_server, to_server) if at_server else (to_server, from_server)
        return NearFrames(self._slots, out, into)


def create(workers: int, x: Tensor) -> CommonMemory | None:
    """By the server; None where the machine does not give it."""
    with contextlib.suppress(OSError, ValueError):
        fd = os.memfd_create("offbeat", os.MFD_CLOEXEC)
        dtype = str(x.dtype).removeprefix("torch.")
        handle = Handle(os.getpid(), fd, secrets.token_bytes(32), workers, x.numel(), x.nbytes, dtype)
        made = CommonMemory(fd, handle)
        made.token = made.handle.token
        return made
    return None


def open_near(handle: Handle | None) -> CommonMemory | None:
    """By others on the server's machine; None where it cannot be reached, or is not what we were told of."""
    if handle is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        fd = os.open(f"/proc/{handle.pid}/fd/{handle.fd}", os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(fd).st_size <= len(handle.token):
            os.close(fd)
            return None
        found = CommonMemory(fd, handle)  # which closes it in the end: locks are bytes of this file
        return found if found.token == handle.token else None
    return None
