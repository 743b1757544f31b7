"""A vector shared by all workers, in the simulator: read and added to chunk by chunk, with a lock or without.

Without a lock, reads are torn and, where adds are not atomic, an add that another one overtakes is lost - as on a real
machine, but in an order that is chosen, so that it happens the same way every time. One pass over the vector takes
`cluster.memory`; an add that is not atomic reads a chunk when it begins with it and writes it when it ends.

Of a `Table` a worker reads the rows of its batch only, in one piece; a row-sparse value is added in parts of its rows.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from offbeat.core.effects import Lock, SharedAdd, SharedRead, Unlock, View
from offbeat.core.errors import ConfigError
from offbeat.core.reduction import payload_bytes
from offbeat.core.sparse import RowSparse, Table
from offbeat.core.void import Void

if TYPE_CHECKING:
    from offbeat.engines.sim import Sim
    from offbeat.engines.slot import WorkerSlot


class SharedMemory:
    """The vector is the server state's `x`, replaced at every write; its `version` counts the adds that are finished.

    A reader's version is the one at which it began.
    """

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self.holder: int | None = None
        self.queue: deque[int] = deque()
        self.writes = 0  # chunks written ...
        self.kept: dict[int, int] = {}  # ... and how many of them chunk k still holds

    # -- reading and adding -------------------------------------------------------------------------------------

    def read(self, i: int, w: "WorkerSlot", effect: SharedRead) -> None:
        sim = self._sim
        if not isinstance(sim.server.x, Table):
            sim.bytes += payload_bytes(sim.server.x)
        if sim.cluster.memory == 0:  # at once, and so in one piece
            sim.deliver(i, w.life, View(sim.server.x, sim.server.version))
        else:
            self._next_read(i, (w.life, effect, sim.server.version, ()))

    def _next_read(self, i: int, data: tuple[int, SharedRead, int, tuple[Any, ...]]) -> None:
        """Chunk k is read at the end of its share of the pass."""
        sim, takes = self._sim, self._sim.cluster.memory / data[1].chunks
        sim.workers[i].communicating += takes
        sim.push(sim.now + takes, i, sim.READ, data)

    def chunk_read(self, i: int, data: tuple[int, SharedRead, int, tuple[Any, ...]]) -> None:
        sim, (life, effect, version, parts) = self._sim, data
        if not self._there(i, life):
            return
        parts = (*parts, _chunk(sim.server.x, len(parts), effect.chunks))
        if len(parts) == effect.chunks:
            sim.deliver(i, life, View(_join(parts), version))
        else:
            self._next_read(i, (life, effect, version, parts))

    def add(self, i: int, w: "WorkerSlot", effect: SharedAdd) -> None:
        sim = self._sim
        sim.bytes += payload_bytes(effect.delta)
        if isinstance(effect.delta, RowSparse) and not effect.atomic:
            raise ConfigError("solver.atomic must be true for row-sparse gradients: their rows are added one by one")
        if sim.cluster.memory == 0:  # nothing can come in between
            for k in range(effect.chunks):
                self.writes += 1
                self.kept[k] = self.kept.get(k, 0) + 1
            sim.server.x = sim.server.x + effect.delta
            self._finish_add(i, w.life)
        else:
            self._next_add(i, w.life, effect, 0)

    def _next_add(self, i: int, life: int, effect: SharedAdd, k: int) -> None:
        sim, takes = self._sim, self._sim.cluster.memory / effect.chunks
        seen = None if effect.atomic else _chunk(sim.server.x, k, effect.chunks)
        sim.workers[i].communicating += takes
        sim.push(sim.now + takes, i, sim.ADDED, (life, effect, k, seen, self.kept.get(k, 0)))

    def chunk_added(self, i: int, data: tuple[int, SharedAdd, int, Any, int]) -> None:
        sim, (life, effect, k, seen, kept) = self._sim, data
        if not self._there(i, life):
            return
        x, n = sim.server.x, effect.chunks
        self.writes += 1
        self.kept[k] = (self.kept.get(k, 0) if effect.atomic else kept) + 1
        base = _chunk(x, k, n) if effect.atomic else seen
        sim.server.x = _with_chunk(x, k, n, base + _chunk(effect.delta, k, n))
        if k + 1 == n:
            self._finish_add(i, life)
        else:
            self._next_add(i, life, effect, k + 1)

    def _finish_add(self, i: int, life: int) -> None:
        server = self._sim.server
        server.version += 1
        self._sim.deliver(i, life, server.version - 1)

    @property
    def lost_share(self) -> float | None:
        """The share of all chunks written that another write has undone; None where nothing was written."""
        return 1.0 - sum(self.kept.values()) / self.writes if self.writes else None

    # -- the lock -----------------------------------------------------------------------------------------------

    def lock(self, i: int, w: "WorkerSlot", effect: Lock) -> None:
        if self.holder is None:
            self.holder = i
            self._sim.deliver(i, w.life, None)
        else:
            self.queue.append(i)

    def unlock(self, i: int, w: "WorkerSlot", effect: Unlock) -> None:
        assert self.holder == i, f"worker {i} gives back a lock that is not its own"
        self._pass_on()
        self._sim.deliver(i, w.life, None)

    def lost(self, i: int) -> None:
        """A dead worker gives up its place, and the lock if it held it."""
        self.queue = deque(j for j in self.queue if j != i)
        if self.holder == i:
            self._pass_on()

    def _pass_on(self) -> None:
        self.holder = self.queue.popleft() if self.queue else None
        if self.holder is not None:
            # As an event of its own, so that a long queue is no deep recursion.
            w = self._sim.workers[self.holder]
            self._sim.push(self._sim.now, self.holder, self._sim.DELIVERED, (w.life, None))

    # -- inside -------------------------------------------------------------------------------------------------

    def _there(self, i: int, life: int) -> bool:
        w = self._sim.workers[i]
        return w.alive and w.life == life

    def state(self) -> dict[str, Any]:
        return {"holder": self.holder, "queue": list(self.queue), "writes": self.writes, "kept": self.kept}

    def load(self, saved: dict[str, Any]) -> None:
        self.holder, self.queue = saved["holder"], deque(saved["queue"])
        self.writes, self.kept = saved["writes"], saved["kept"]


def _bounds(x: Any, k: int, chunks: int) -> slice:
    size = len(x)
    return slice(k * size // chunks, (k + 1) * size // chunks)


def _chunk(x: Any, k: int, chunks: int) -> Any:
    """A view: x itself is never mutated."""
    if isinstance(x, RowSparse):
        return x.part(k, chunks)
    return x if chunks == 1 or isinstance(x, Void | Table) else x[_bounds(x, k, chunks)]


def _with_chunk(x: Any, k: int, chunks: int, value: Any) -> Any:
    if chunks == 1 or isinstance(x, Void | Table):
        return value
    out = x.clone()
    out[_bounds(x, k, chunks)] = value
    return out


def _join(parts: tuple[Any, ...]) -> Any:
    if isinstance(parts[-1], Void | Table):  # a Table as it is when the pass ends
        return parts[-1]
    if len(parts) == 1:
        return parts[0]
    import torch

    return torch.cat(parts)
