"""The server's side on a cluster: one socket for all lines, numbers of the board on every message."""

import os
import signal
import time
from collections.abc import Callable
from threading import Event
from typing import Any

from offbeat.core.effects import SharedAdd
from offbeat.core.reduction import mean_of, payload_bytes
from offbeat.core.sparse import dense
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.circles_at_server import CirclesAtServer
from offbeat.engines.ray.common_memory import CommonMemory
from offbeat.engines.ray.frames import Frames
from offbeat.engines.ray.outbox import Outbox
from offbeat.engines.ray.remote_board import RemoteBoard
from offbeat.engines.ray.server_inbox import ServerInbox
from offbeat.engines.ray.shard_lines import ShardLines
from offbeat.engines.ray.sockets import ServerSocket
from offbeat.engines.ray.sum_messages import SumEnded
from offbeat.engines.ray.worker_lines import WorkerLines
from offbeat.engines.real import messages as m
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.in_place import needs_one_machine
from offbeat.engines.real.memory_slots import bytes_of
from offbeat.engines.real.row_logs import read_rows
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Heard, Ordered, RunError, WentAway

_GRACE = 10.0  # seconds in which everybody says that it has given up a sum
_LONG = 0.5  # seconds between two looks at whether workers stand


class RayHub:
    """A `Hub` over sockets."""

    def __init__(
        self,
        site: Site,
        board: RemoteBoard,
        socket: ServerSocket,
        secret: bytes,
        life: int,
        over: Event,
        memory: CommonMemory | None = None,
        control_is_near: bool = False,
        shards: ShardLines | None = None,
        among_workers: bool = False,
    ) -> None:
        """`memory` is shared with workers on this machine and, if it is near, with the control. `shards`, if there are
        any, have the server's vectors. `among_workers`: they sum among themselves."""
        self._site, self._board, self._socket, self._over, self._memory = site, board, socket, over, memory
        self._x0 = dense(site.initial.x)
        self._mail = site.mail(Frames())
        self._lines = WorkerLines(secret, site.cluster.workers, site.initial.x, self._mail)
        log = memory.log if memory is not None and control_is_near else None
        self._outbox = Outbox(socket, secret, life, board, self._lines, self._mail, log)
        self._shown: tuple[Any, ...] = ()
        self._shards = shards
        self._sums: CirclesAtServer | None = None
        if among_workers:
            grace = min(_GRACE, site.options.patience_seconds)
            self._sums = CirclesAtServer(self._place, self.send, self._give_up, grace)
        ends = (self._lines, self._outbox, self._mail, over, self.end)
        self._inbox = ServerInbox(site, board, socket, *ends, memory, shards, self._sums)

    def gather_shards(self) -> Callable[[Any], Any]:
        """Waits for them, if there are to be any; says what stands for a vector of the server's."""
        if self._shards is None:
            return lambda x: x
        self._shards.take = self._inbox.take
        self._lines.x0 = self._shards.assemble(self._x0)
        for line in self._lines.by_rank.values():  # who came before them
            line.known = {"x0": self._lines.x0}
        return self._shards.lodge

    # -- hearing ------------------------------------------------------------------------------------------------

    def next(self, timeout_seconds: float) -> Heard | None:
        self._show_changes()
        if self._sums is not None:
            self._sums.look()
        inbox = self._inbox
        inbox.look_round()
        self._flush()
        if inbox.orders:
            return Ordered(inbox.orders.popleft())
        deadline = time.monotonic() + timeout_seconds
        while not inbox.later:
            left = deadline - time.monotonic()
            if not inbox.take(max(0.0, left)) and left <= 0:
                return Ordered(inbox.orders.popleft()) if inbox.orders else None
            if inbox.orders:
                return Ordered(inbox.orders.popleft())
        return inbox.later.popleft()

    def next_order(self) -> m.FromControl:
        self._show_changes()
        self._flush()
        return self._inbox.next_order()

    def _flush(self) -> None:
        if self._shards is not None:
            self._shards.flush()

    def other(self, worker: int, message: Any) -> None:
        if isinstance(message, SumEnded) and self._sums is not None:
            self._sums.summed(worker, message)
            return
        raise TypeError(f"the server was sent {message!r} by worker {worker}")

    def unread(self, worker: int) -> list[m.FromWorker]:
        return self._inbox.unread(worker)

    @property
    def refused(self) -> int:
        """How many messages were."""
        return self._inbox.refused

    # -- saying -------------------------------------------------------------------------------------------------

    def send(self, worker: int, message: Any) -> None:
        line = self._lines.by_rank.get(worker)
        if line is None:
            return
        frames: list[Any] = []
        if type(message) is m.Met:
            packed = line.mail.pack(message.mean, frames, {})
            message = m.Met(packed, message.size, message.weight, message.members, message.work)
        self._outbox.post(line, message, frames)

    def answer(self, worker: int, value: Any) -> int:
        line = self._lines.by_rank[worker]
        frames: list[Any] = []
        tree, parts, line.known = line.mail.pack_reply(value, frames, line.known)
        self._outbox.post(line, m.Answered((tree, parts)), frames)
        self._flush()
        return min(payload_bytes(value), bytes_of(parts))  # less, where only rows went

    def forward(self, sender: int, to: int, letter: Any) -> None:
        tree, parts, frames = letter
        line = self._lines.by_rank.get(to)
        if line is not None:
            self._outbox.post(line, m.Letter(sender, (tree, parts)), frames)

    def _show_changes(self) -> None:
        """Tells workers what has changed on the board and cannot wait for the next message."""
        b = self._board
        shown = (int(b.rest[0]), float(b.loss_limit[0]), *b.cancel.tolist())
        if shown != self._shown:
            before, self._shown = self._shown, shown
            everybody = shown[:2] != before[:2]
            for line in self._lines.there():
                if everybody or shown[2 + line.rank] != before[2 + line.rank]:
                    self._outbox.post(line, r.Looked())

    def sum_up(self, meeting: Meeting, done: Callable[[Meeting, Any, int], None]) -> None:
        """The server sums, in worker order, unless workers do."""
        if self._sums is not None:
            self._sums.begin(meeting, done)
            return
        mean = mean_of([a.given for _, a in meeting.given], meeting.weights, meeting.group)
        done(meeting, mean, payload_bytes(mean))

    # -- the control --------------------------------------------------------------------------------------------

    def tell(self, message: m.ToControl) -> None:
        self._outbox.tell(message)

    def record(self, transaction: m.Transaction) -> None:
        self._outbox.record(transaction)

    def announced(self) -> tuple[list[Any], int]:
        found, self._inbox.announcements = self._inbox.announcements, []
        rows = [row for more, _ in found for row in more]
        steps = sum(count for _, count in found)
        if self._memory is not None and needs_one_machine(self._site.solver):
            more, count = read_rows(self._memory.logs)
            rows, steps = rows + more, steps + count
        return sorted(rows, key=lambda row: row[:2]), steps

    # -- processes ----------------------------------------------------------------------------------------------

    def lost(self, worker: int) -> None:
        if self._shards is not None:
            self._shards.forget(self._lines.by_rank[worker])
        if self._memory is not None:
            self._memory.vectors.placed[worker] = 0
        self._lines.close(worker)
        self._inbox.forget(worker)
        if self._sums is not None:
            self._sums.lost(worker)

    def _place(self, worker: int) -> tuple[int, str] | None:
        """Its life and its machine, if it is there."""
        line = self._lines.by_rank.get(worker)
        return None if line is None else (line.life, line.machine)

    def _give_up(self, worker: int, seconds: float) -> None:
        """A worker that is silent in the middle of a sum."""
        self.tell(m.Hung(worker, seconds))
        self.end(worker)

    def pause(self) -> None:
        """Returns when all stand still. They finish the gradients that they are computing."""
        deadline = time.monotonic() + self._site.options.patience_seconds
        for line in self._lines.there():
            line.standing = False
            self._outbox.post(line, r.Stand())
        while any(not line.standing for line in self._lines.there()):
            self._inbox.take(_LONG)
            for heard in self._inbox.later:
                if isinstance(heard, WentAway):
                    self._lines.by_rank[heard.worker].standing = True  # for good
            if time.monotonic() > deadline:
                return  # whoever does not answer is found out when the run goes on

    def resume(self) -> None:
        for line in self._lines.there():
            self._outbox.post(line, r.Resume())

    def end(self, worker: int) -> None:
        """It may be where nobody reaches it: so it is gone for us at once."""
        line = self._lines.by_rank[worker]
        self._outbox.say(r.EndWorker(worker, line.life))
        self._inbox.later.append(WentAway(worker))

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        while True:
            time.sleep(_LONG)

    def shared(self) -> tuple[Any, int] | None:
        if SharedAdd not in self._site.solver.asks or self._memory is None:
            return None
        return self._memory.vectors.as_it_is()

    def share(self, x: Any, version: int) -> None:
        if self._memory is None:
            raise RunError("there is no memory that workers could share: this machine does not give it")
        self._memory.vectors.share(x, version)
