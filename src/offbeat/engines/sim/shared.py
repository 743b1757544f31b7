"""A vector shared by all workers, in the simulator: read and added to chunk by chunk, with a lock or without.

Without a lock, reads are torn and, where adds are not atomic, an add that another one overtakes is lost - as on a real
machine, but in an order that is chosen, so that it happens the same way every time. One pass over the vector takes
`cluster.memory`; an add that is not atomic reads a chunk when it begins with it and writes it when it ends.

Of a `RowTable` a worker reads the rows of its batch only, in one piece; a row-sparse value is added in parts of its
rows.
"""

from collections import deque
from typing import Any

from offbeat.core.effects import Lock, SharedAdd, SharedRead, Unlock, View
from offbeat.core.errors import ConfigError
from offbeat.core.reduction import payload_bytes
from offbeat.core.sparse import RowSparse, RowTable
from offbeat.core.void import Void
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import ADDED, DELIVERED, READ
from offbeat.engines.sim.sim_worker import SimWorker


class SharedMemory:
    """The vector is the server state's `x`, replaced at every write; its `version` counts the adds that are finished.

    A reader's version is the one at which it began.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.holder: int | None = None
        self.queue: deque[int] = deque()
        self.writes = 0  # chunks written ...
        self.kept: dict[int, int] = {}  # ... and how many of them chunk k still holds

    # -- reading and adding -------------------------------------------------------------------------------------

    def read(self, i: int, w: SimWorker, effect: SharedRead) -> None:
        context = self._context
        if not isinstance(context.serving.state.x, RowTable):
            context.bytes += payload_bytes(context.serving.state.x)
        if context.cluster.memory == 0:  # at once, and so in one piece
            context.deliver(i, w.life, View(context.serving.state.x, context.serving.state.version))
        else:
            self._next_read(i, (w.life, effect, context.serving.state.version, ()))

    def _next_read(self, i: int, data: tuple[int, SharedRead, int, tuple[Any, ...]]) -> None:
        """Chunk k is read at the end of its share of the pass."""
        context, takes = self._context, self._context.cluster.memory / data[1].chunks
        context.spend(i, takes, READ, data)

    def chunk_read(self, i: int, data: tuple[int, SharedRead, int, tuple[Any, ...]]) -> None:
        context, (life, effect, version, parts) = self._context, data
        if not self._there(i, life):
            return
        parts = (*parts, _chunk(context.serving.state.x, len(parts), effect.chunks))
        if len(parts) == effect.chunks:
            context.deliver(i, life, View(_join(parts), version))
        else:
            self._next_read(i, (life, effect, version, parts))

    def add(self, i: int, w: SimWorker, effect: SharedAdd) -> None:
        context = self._context
        context.bytes += payload_bytes(effect.delta)
        if isinstance(effect.delta, RowSparse) and not effect.atomic:
            raise ConfigError("solver.atomic must be true for row-sparse gradients: their rows are added one by one")
        if context.cluster.memory == 0:  # nothing can come in between
            for k in range(effect.chunks):
                self.writes += 1
                self.kept[k] = self.kept.get(k, 0) + 1
            context.serving.state.x = context.serving.state.x + effect.delta
            self._finish_add(i, w.life)
        else:
            self._next_add(i, w.life, effect, 0)

    def _next_add(self, i: int, life: int, effect: SharedAdd, k: int) -> None:
        context, takes = self._context, self._context.cluster.memory / effect.chunks
        seen = None if effect.atomic else _chunk(context.serving.state.x, k, effect.chunks)
        context.spend(i, takes, ADDED, (life, effect, k, seen, self.kept.get(k, 0)))

    def chunk_added(self, i: int, data: tuple[int, SharedAdd, int, Any, int]) -> None:
        context, (life, effect, k, seen, kept) = self._context, data
        if not self._there(i, life):
            return
        x, n = context.serving.state.x, effect.chunks
        self.writes += 1
        self.kept[k] = (self.kept.get(k, 0) if effect.atomic else kept) + 1
        base = _chunk(x, k, n) if effect.atomic else seen
        context.serving.state.x = _with_chunk(x, k, n, base + _chunk(effect.delta, k, n))
        if k + 1 == n:
            self._finish_add(i, life)
        else:
            self._next_add(i, life, effect, k + 1)

    def _finish_add(self, i: int, life: int) -> None:
        server = self._context.serving.state
        server.version += 1
        self._context.deliver(i, life, server.version - 1)

    @property
    def lost_share(self) -> float | None:
        """The share of all chunks written that another write has undone; None where nothing was written."""
        return 1.0 - sum(self.kept.values()) / self.writes if self.writes else None

    # -- the lock -----------------------------------------------------------------------------------------------

    def lock(self, i: int, w: SimWorker, effect: Lock) -> None:
        if self.holder is None:
            self.holder = i
            self._context.deliver(i, w.life, None)
        else:
            self.queue.append(i)

    def unlock(self, i: int, w: SimWorker, effect: Unlock) -> None:
        assert self.holder == i, f"worker {i} gives back a lock that is not its own"
        self._pass_on()
        self._context.deliver(i, w.life, None)

    def lost(self, i: int) -> None:
        """A dead worker gives up its place, and the lock if it held it."""
        self.queue = deque(j for j in self.queue if j != i)
        if self.holder == i:
            self._pass_on()

    def _pass_on(self) -> None:
        self.holder = self.queue.popleft() if self.queue else None
        if self.holder is not None:
            # As an event of its own, so that a long queue is no deep recursion.
            w = self._context.workers[self.holder]
            self._context.events.push(self._context.now, self.holder, DELIVERED, (w.life, None))

    # -- inside -------------------------------------------------------------------------------------------------

    def _there(self, i: int, life: int) -> bool:
        return not self._context.void(i, life)

    def saved(self) -> dict[str, Any]:
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
    return x if chunks == 1 or isinstance(x, Void | RowTable) else x[_bounds(x, k, chunks)]


def _with_chunk(x: Any, k: int, chunks: int, value: Any) -> Any:
    if chunks == 1 or isinstance(x, Void | RowTable):
        return value
    out = x.clone()
    out[_bounds(x, k, chunks)] = value
    return out


def _join(parts: tuple[Any, ...]) -> Any:
    if isinstance(parts[-1], Void | RowTable):  # a RowTable as it is when the pass ends
        return parts[-1]
    if len(parts) == 1:
        return parts[0]
    import torch

    return torch.cat(parts)
