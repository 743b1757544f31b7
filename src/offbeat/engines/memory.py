"""A vector shared by all workers, in the simulator: read and added to chunk by chunk, with a lock or without.

Without a lock, reads are torn and, where adds are not atomic, an add that another one overtakes is lost - as on a real
machine, but in an order that is chosen, so that it happens the same way every time. One pass over the vector takes
`cluster.memory`; an add that is not atomic reads a chunk when it begins with it and writes it when it ends.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from offbeat.core.effects import Lock, SharedAdd, SharedRead, Unlock
from offbeat.core.void import Void

if TYPE_CHECKING:
    from offbeat.engines.sim import Sim
    from offbeat.engines.slot import WorkerSlot


class SharedMemory:
    """The vector is the server state's `x`, replaced at every write and never mutated."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self.holder: int | None = None
        self.queue: deque[int] = deque()
        self.lost_adds = 0  # chunks whose write undid somebody else's
        self.adds = 0
        self.version: dict[int, int] = {}  # writes to each chunk

    # -- reading and adding -------------------------------------------------------------------------------------

    def read(self, i: int, w: "WorkerSlot", effect: SharedRead) -> None:
        self._next_read(i, (w.life, effect, []))

    def _next_read(self, i: int, data: tuple[int, SharedRead, list[Any]]) -> None:
        """Chunk k is read at the end of its share of the pass."""
        sim, (life, effect, parts) = self._sim, data
        takes = sim.cluster.memory / effect.chunks
        if takes == 0:  # at once, and so in one piece
            sim.deliver(i, life, sim.server.x)
            return
        sim.workers[i].communicating += takes
        sim.push(sim.now + takes, i, sim.READ, (life, effect, parts))

    def chunk_read(self, i: int, data: tuple[int, SharedRead, list[Any]]) -> None:
        sim, (life, effect, parts) = self._sim, data
        if not self._there(i, life):
            return
        parts = [*parts, self._chunk(sim.server.x, len(parts), effect.chunks)]
        if len(parts) == effect.chunks:
            sim.deliver(i, life, _join(parts))
        else:
            self._next_read(i, (life, effect, parts))

    def add(self, i: int, w: "WorkerSlot", effect: SharedAdd) -> None:
        self._next_add(i, w.life, effect, 0)

    def _next_add(self, i: int, life: int, effect: SharedAdd, k: int) -> None:
        sim = self._sim
        if k == effect.chunks:
            self.adds += 1
            sim.deliver(i, life, None)
            return
        takes = sim.cluster.memory / effect.chunks
        seen = None if effect.atomic else self._chunk(sim.server.x, k, effect.chunks)
        data = (life, effect, k, seen, self.version.get(k, 0))
        if takes == 0:
            self.chunk_added(i, data)
            return
        sim.workers[i].communicating += takes
        sim.push(sim.now + takes, i, sim.ADDED, data)

    def chunk_added(self, i: int, data: tuple[int, SharedAdd, int, Any, int]) -> None:
        sim, (life, effect, k, seen, version) = self._sim, data
        if not self._there(i, life):
            return
        x = sim.server.x
        base = self._chunk(x, k, effect.chunks) if seen is None else seen
        if seen is not None and self.version.get(k, 0) != version:
            self.lost_adds += 1
        self.version[k] = self.version.get(k, 0) + 1
        sim.server.x = self._with_chunk(x, k, effect.chunks, base + self._chunk(effect.delta, k, effect.chunks))
        sim.bytes += int(getattr(effect.delta, "nbytes", 0)) // effect.chunks
        self._next_add(i, life, effect, k + 1)

    # -- the lock -----------------------------------------------------------------------------------------------

    def lock(self, i: int, w: "WorkerSlot", effect: Lock) -> None:
        if self.holder is None:
            self.holder = i
            self._sim.deliver(i, w.life, None)
        else:
            self.queue.append(i)

    def unlock(self, i: int, w: "WorkerSlot", effect: Unlock) -> None:
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

    def _bounds(self, x: Any, k: int, chunks: int) -> tuple[int, int]:
        size = len(x)
        return k * size // chunks, (k + 1) * size // chunks

    def _chunk(self, x: Any, k: int, chunks: int) -> Any:
        if chunks == 1 or isinstance(x, Void):
            return x
        start, stop = self._bounds(x, k, chunks)
        return x[start:stop].clone()

    def _with_chunk(self, x: Any, k: int, chunks: int, value: Any) -> Any:
        if chunks == 1 or isinstance(x, Void):
            return value
        start, stop = self._bounds(x, k, chunks)
        out = x.clone()
        out[start:stop] = value
        return out

    def state(self) -> dict[str, Any]:
        kept = {"holder": self.holder, "queue": list(self.queue), "lost_adds": self.lost_adds}
        return {**kept, "adds": self.adds, "version": self.version}

    def load(self, saved: dict[str, Any]) -> None:
        self.holder, self.queue = saved["holder"], deque(saved["queue"])
        self.lost_adds, self.adds, self.version = saved["lost_adds"], saved["adds"], saved["version"]


def _join(parts: list[Any]) -> Any:
    if len(parts) == 1 or isinstance(parts[0], Void):
        return parts[0]
    import torch

    return torch.cat(parts)
