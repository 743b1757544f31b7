"""How a worker carries out what needs no server: the shared vector, its lock, all-reduce, messages and averages."""

import fcntl
from typing import TYPE_CHECKING, Any

from torch import Tensor

from offbeat.core.effects import AllReduce, Lock, Mix, Reduced, Send, SharedAdd, SharedRead, Unlock, View, Wait
from offbeat.core.reduction import hierarchical_mean, payload_bytes, weighted_mean
from offbeat.core.sparse import RowSparse, dense
from offbeat.engines.local.memory import MAILBOXES, PROBES, Arena

if TYPE_CHECKING:
    from offbeat.engines.local.worker import Worker

_PATIENCE = 0.005  # between two looks for a free mailbox


class ByteLock:
    """A lock between processes: one byte of the shared file. The kernel takes it back from a process that dies."""

    def __init__(self, arena: Arena, number: int) -> None:
        self._fd, self._at = arena.fd, number

    def __enter__(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, self._at)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, self._at)


class SharedVector:
    """One vector, read and added to by everybody at once. No lock is on this path, and additions can be lost."""

    def __init__(self, worker: "Worker") -> None:
        self._worker, self._arena, self._rank = worker, worker.arena, worker.rank
        self._lock = ByteLock(self._arena, self._arena.shape.workers)
        size = self._arena.shape.vector
        self._probed = slice(0, size, max(1, size // PROBES))

    def read(self, effect: SharedRead) -> View:
        begun = self._worker.clock.now()
        version = int(self._arena.adds.sum())
        # Of a row-sparse task only the rows of its batch are read, from the live vector when the gradient is computed.
        x = self._arena.shared if self._worker.site.row_sparse else self._arena.shared.clone()
        view = View(x, version)
        self._arena.communicating[self._rank] += self._worker.clock.now() - begun
        return view

    def add(self, effect: SharedAdd) -> int:
        arena, i = self._arena, self._rank
        begun = self._worker.clock.now()
        if isinstance(effect.delta, RowSparse):
            effect.delta.add_into(arena.shared)
            probe = effect.delta.at(range(arena.shape.vector)[self._probed][:PROBES]).double().numpy()
        else:
            arena.shared.add_(effect.delta)
            probe = effect.delta[self._probed][:PROBES].double().numpy()
        arena.probes[i, 0, : len(probe)] += probe
        arena.probes[i, 1, : len(probe)] += abs(probe)
        version = int(arena.adds.sum())
        arena.adds[i] += 1
        arena.communicating[i] += self._worker.clock.now() - begun
        return version

    def lock(self, effect: Lock) -> None:
        begun = self._worker.clock.now()
        self._lock.__enter__()
        self._arena.locked[self._rank] += self._worker.clock.now() - begun

    def unlock(self, effect: Unlock) -> None:
        self._lock.__exit__()


def lost_share(arena: Arena, x0: Tensor) -> float | None:
    """Of what was added to the shared vector, how much is not there: on some components, where sums were kept.

    Rounding makes it a little more than nothing where nothing was lost.
    """
    wanted, size = arena.probes.sum(0), arena.shape.vector
    if not wanted[1].any():
        return None
    probed = slice(0, size, max(1, size // PROBES))
    start, now = (x[probed][:PROBES].double().numpy() for x in (x0, arena.shared))
    n = len(now)
    return float(abs(start + wanted[0, :n] - now).sum() / wanted[1, :n].sum())


class Sums:
    """All-reduce: the server says when all have come; all is summed in worker order, so that all have the same bits.

    Each sums its slice of a long vector; short ones everybody sums whole, which is cheaper than another message. Then
    a slow one may still read when a fast one gives its next vector, which is why there are two places for them: the
    fast one cannot come to the third before the slow one has come to the second, as everybody takes part.
    """

    def __init__(self, worker: "Worker") -> None:
        self._worker, self._arena = worker, worker.arena

    def reduce(self, effect: AllReduce) -> Reduced:
        worker, arena = self._worker, self._arena
        begun = worker.clock.now()
        value, size = effect.value, 0
        at, rows = 2 if effect.members is not None else int(arena.sums[worker.rank]) % 2, None
        if effect.weight and isinstance(value, RowSparse):
            rows = worker.mail.pack(value, arena.push_slot(worker.rank), {})
        elif effect.weight:
            size = len(value)
            arena.given(worker.rank, at, size).copy_(dense(value))
            arena.sums[worker.rank] += at < 2
        members = None if effect.members is None else list(effect.members)
        worker.channel.send(("reduce", effect.weight, members, effect.group, size, at, rows))
        arena.communicating[worker.rank] += worker.clock.now() - begun
        _, at, size, weight, alive, work, rows, summands = worker.await_("reduced")
        begun = worker.clock.now()
        if rows is not None:
            value = self._rows(rows, arena.own_slot(at))
        elif summands is not None:
            value = self._mean(slice(0, size), size, *summands)
        else:
            value = arena.own(at, size).clone() if size else None
        arena.communicating[worker.rank] += worker.clock.now() - begun
        return Reduced(value, weight, tuple(alive), work)

    def _mean(self, part: slice, size: int, given: list[Any], weights: list[float], group: int | None) -> Tensor:
        values = [self._arena.given(j, at, size)[part] for j, at in given]
        if len(values) == 1:
            return values[0].clone()
        mean: Tensor
        mean = weighted_mean(values, weights) if group is None else hierarchical_mean(values, weights, group)
        return mean

    def sum_rows(self, at: int, given: list[int], weights: list[float], group: int | None, all_rows: list[Any]) -> None:
        """Row-sparse values, all by one worker: they are few rows, and which ones is known only after the sum."""
        worker, arena = self._worker, self._arena
        begun = worker.clock.now()
        values = [self._rows(rows, arena.push_slot(j)) for j, rows in zip(given, all_rows, strict=True)]
        mean = weighted_mean(values, weights) if group is None else hierarchical_mean(values, weights, group)
        worker.channel.send(("summed", at, 0, worker.mail.pack(mean, arena.own_slot(at), {}), mean.nbytes))
        arena.communicating[worker.rank] += worker.clock.now() - begun

    def _rows(self, rows: list[Any], slot: int) -> Any:
        tree, parts = rows
        return self._worker.mail.unpack(tree, parts, slot, {})

    def sum_slice(self, at: int, size: int, summands: list[Any], k: int, n: int) -> None:
        """Slice k of n, into the vector of worker `at`."""
        begun = self._worker.clock.now()
        mine = slice(k * size // n, (k + 1) * size // n)
        self._arena.own(at, size)[mine] = self._mean(mine, size, *summands)
        self._worker.channel.send(("summed", at, k))
        self._arena.communicating[self._worker.rank] += self._worker.clock.now() - begun


class Post:
    """Messages to peers: written once where all may read, passed on by the server in order."""

    def __init__(self, worker: "Worker") -> None:
        self._worker, self._arena = worker, worker.arena
        self._sent = 0
        self.gone: set[int] = set()
        self.arrived = 0

    def send(self, effect: Send) -> tuple[int, ...]:
        worker, arena, i = self._worker, self._arena, self._worker.rank
        k = self._sent % MAILBOXES
        while any(arena.unread[i, k, j] and arena.alive[j] for j in range(arena.shape.workers)):
            worker.hear(_PATIENCE)  # or two that wait for each other would wait for ever
        begun = worker.clock.now()
        self._sent += 1
        tree, parts = worker.mail.pack(effect.message, arena.mailbox(i, k), {})
        to = [j for j in effect.to if arena.alive[j]]
        arena.unread[i, k, to] = 1
        worker.channel.send(("send", to, k, tree, parts, payload_bytes(effect.message)))
        arena.communicating[i] += worker.clock.now() - begun
        return tuple(to)

    def receive(self, sender: int, k: int, tree: Any, parts: list[Any]) -> None:
        worker, arena, i = self._worker, self._arena, self._worker.rank
        message = worker.mail.unpack(tree, parts, arena.mailbox(sender, k), {})
        arena.unread[sender, k, i] = 0
        self.arrived += 1
        for effect in worker.solver.on_message(worker.state, sender, message):
            worker.announce(effect)

    def wait(self, effect: Wait) -> bool:
        before = self.arrived
        while self._worker.hear(0):
            pass
        if self.arrived == before and effect.peer not in self.gone:
            self._worker.channel.send(("idle",))
        while self.arrived == before:
            if effect.peer in self.gone:
                return False
            self._worker.hear(None)
        return True


class Mixing:
    """Averages of pairs: parameters lie in shared memory whenever the rule does not run, under the worker's lock."""

    def __init__(self, worker: "Worker") -> None:
        self._worker, self._arena, self._rank = worker, worker.arena, worker.rank
        self.lock = ByteLock(self._arena, worker.rank)
        self._seen = int(self._arena.mixed[worker.rank])

    def fetch(self) -> None:
        """Before the rule goes on: what peers have made of its parameters."""
        if self._arena.mixed[self._rank] != self._seen:
            self._worker.state.x = self._arena.own(self._rank).clone()
            self._seen = int(self._arena.mixed[self._rank])

    def store(self, before: Any) -> None:
        """After the rule has asked for something."""
        x = self._worker.state.x
        if x is not before and x is not None:
            self._arena.own(self._rank).copy_(dense(x))

    def mix(self, effect: Mix) -> None:
        arena, i, j = self._arena, self._rank, effect.peer
        if i == j:
            return
        begun = self._worker.clock.now()
        with ByteLock(arena, min(i, j)), ByteLock(arena, max(i, j)):
            if arena.alive[j]:
                mean = (arena.own(i) + arena.own(j)) / 2
                for k in (i, j):
                    arena.own(k).copy_(mean)
                    arena.mixed[k] += 1
        arena.communicating[i] += self._worker.clock.now() - begun
