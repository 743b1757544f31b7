"""The server's side on a cluster: one socket for all lines, numbers of the board on every message."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from math import inf
from threading import Event
from typing import Any

from offbeat.core.effects import SharedAdd
from offbeat.core.reduction import mean_of, payload_bytes
from offbeat.core.solver import Shown
from offbeat.core.sparse import dense
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.common_memory import CommonMemory
from offbeat.engines.ray.frames import Frames, WrongMessageError
from offbeat.engines.ray.host_clock import kernel_id
from offbeat.engines.ray.outbox import Outbox
from offbeat.engines.ray.remote_board import RemoteBoard, buffers_of, row_of, set_row
from offbeat.engines.ray.shard_frames import PartsAtServer
from offbeat.engines.ray.shard_lines import ShardLines
from offbeat.engines.ray.sockets import ServerSocket
from offbeat.engines.ray.vetting import vet
from offbeat.engines.ray.worker_lines import WorkerLine, WorkerLines
from offbeat.engines.real import messages as m
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.in_place import needs_one_machine
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.memory_slots import bytes_of
from offbeat.engines.real.row_logs import read_rows
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Came, Closed, Heard, Ordered, RunError, Said, WentAway

_LAST_WORDS = 0.5  # seconds in which what a worker said before its end may still arrive
_LOOK = 0.01  # seconds between two looks at what workers of this machine have begun
_LONG = 0.5  # seconds between two looks at whether the control is still there


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
    ) -> None:
        """`memory` is shared with workers on this machine and, if it is near, with the control. `shards`, if there are
        any, have the server's vectors."""
        self._site, self._board, self._socket, self._over, self._memory = site, board, socket, over, memory
        self._x0 = dense(site.initial.x)
        self._mail = Mail(site.codec, Frames())
        self._lines = WorkerLines(secret, site.cluster.workers, site.initial.x, self._mail)
        log = memory.log if memory is not None and control_is_near else None
        self._outbox = Outbox(socket, secret, life, board, self._lines, self._mail, log)
        self._later: deque[Heard] = deque()
        self._orders: deque[m.FromControl] = deque()
        self._announcements: list[tuple[list[Any], int]] = []
        self._ended: deque[tuple[float, int, int]] = deque()  # processes that are gone: when, who, which life
        self._shown: tuple[Any, ...] = ()
        self._next_look = 0.0
        self.refused = 0
        self._shards = shards

    def gather_shards(self) -> Callable[[Any], Any]:
        """Waits for them, if there are to be any; says what stands for a vector of the server's."""
        if self._shards is None:
            return lambda x: x
        self._shards.take = self._take
        self._lines.x0 = self._shards.assemble(self._x0)
        for line in self._lines.by_rank.values():  # who came before them
            line.known = {"x0": self._lines.x0}
        return self._shards.lodge

    # -- hearing ------------------------------------------------------------------------------------------------

    def next(self, timeout_seconds: float) -> Heard | None:
        self._show_changes()
        self._look_round()
        self._flush()
        if self._orders:
            return Ordered(self._orders.popleft())
        deadline = time.monotonic() + timeout_seconds
        while not self._later:
            left = deadline - time.monotonic()
            if not self._take(max(0.0, left)) and left <= 0:
                return Ordered(self._orders.popleft()) if self._orders else None
            if self._orders:
                return Ordered(self._orders.popleft())
        return self._later.popleft()

    def next_order(self) -> m.FromControl:
        self._show_changes()
        self._flush()
        while not self._orders:
            self._take(_LONG)
        return self._orders.popleft()

    def _take(self, timeout_seconds: float) -> bool:
        """Takes one message, if there is one in time; what it means for the server is put where it will be found."""
        if self._over.is_set():
            raise Closed
        while self._ended and time.monotonic() >= self._ended[0][0]:
            _, rank, life = self._ended.popleft()
            line = self._lines.by_rank.get(rank)
            if line is not None and line.life == life:
                if line.near:
                    self._look_at(line)
                self._later.append(WentAway(rank))
        found = self._socket.receive(min(timeout_seconds, _LONG))
        if found is None:
            return False
        identity, frames = found
        if identity == self._outbox.control_identity:
            self._obey(frames)
            return True
        try:
            if self._shards is not None and identity in self._shards:
                for call in self._shards.hear(identity, frames):
                    self._heed(*call)
                return True
            line = self._lines.of(identity, frames)
        except WrongMessageError as e:
            self._refuse(str(e))
        else:
            self._hear(line, frames)
        return True

    def _obey(self, frames: list[Any]) -> None:
        try:
            opened = self._outbox.control.open(frames)
        except WrongMessageError as e:
            self._refuse(f"the control's message was refused: {e}")
            return
        if opened is None:
            return
        match order := opened[1]:
            case r.Kept(number):
                self._outbox.keep(number)
            case r.WorkerEnded(rank, life, how):
                if self._lines.is_new(rank, life):  # it ended before it could greet us
                    self._lines.open(rank, life).came = True
                    self._later.append(Came(rank, how))
                self._ended.append((time.monotonic() + _LAST_WORDS, rank, life))
            case _:
                self._orders.append(order)

    def _hear(self, line: WorkerLine, frames: list[Any]) -> None:
        try:
            opened = line.letters.open(frames)
            if opened is None:
                return  # a part
            envelope, message, tensors = opened
            if line.near:
                self._look_at(line)
            elif envelope.row is not None and line.came:
                self._set_row(line.rank, envelope.row)
        except WrongMessageError as e:
            self._refuse_of(line, e)
        else:
            if self._shards is None or self._shards.complete(line, message, tensors):
                self._heed(line, message, tensors)

    def _heed(self, line: WorkerLine, message: Any, tensors: list[Any]) -> None:
        try:
            self._understand(line, message, tensors)
        except WrongMessageError as e:
            self._refuse_of(line, e)

    def _refuse_of(self, line: WorkerLine, why: WrongMessageError) -> None:
        self._refuse(f"a message of worker {line.rank} was refused: {why}")
        self.end(line.rank)

    def _flush(self) -> None:
        if self._shards is not None:
            self._shards.flush()

    def _set_row(self, rank: int, row: r.Row) -> None:
        set_row(self._board, rank, row)
        self._outbox.new_rows.add(rank)

    def _look_at(self, line: WorkerLine) -> None:
        """At the numbers of a worker on this machine, which writes them where we see them."""
        assert self._memory is not None
        row = self._memory.row(line.rank)
        if row != line.row:
            line.row = row
            self._set_row(line.rank, row)

    def _look_round(self) -> None:
        """At all of them, now and then: who begins a gradient does not say so."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK
            for line in self._lines.by_rank.values():
                if line.near:
                    self._look_at(line)

    def _understand(self, line: WorkerLine, message: Any, tensors: list[Any]) -> None:
        match message:
            case r.Hello(how, near):
                self._welcome(line, how, near)
            case r.Ping():
                self._outbox.post(line, r.Pong(time.monotonic_ns()))
            case r.Began() | r.Looked():
                pass
            case r.Announced(rows, steps, number):
                line.announced = number
                self._announcements.append(([tuple(row) for row in rows], steps))
            case r.Standing(shown):
                line.standing = True
                self._publish(line.rank, shown, tensors)
            case r.Leaving(shown):
                self._publish(line.rank, shown, tensors)
            case m.Called():
                message.payload = line.mail.unpack_pair(message.payload, tensors, line.known)
                self._vet(message.payload)
                self._later.append(Said(line.rank, message))
            case m.Reducing():
                message.given = line.mail.unpack_pair(message.given, tensors, {})
                self._vet(message.given)
                self._later.append(Said(line.rank, message))
            case m.Post():
                message.letter = (*message.letter, tensors)
                self._later.append(Said(line.rank, message))
            case _:
                self._later.append(Said(line.rank, message))

    def _vet(self, payload: Any) -> None:
        vet(payload, self._x0, finite=bool(self._board.loss_limit[0] < inf))

    def _welcome(self, line: WorkerLine, how: str, near: bool) -> None:
        """A greeting is answered as often as it comes; the worker has come once."""
        frames: list[Any] = []
        buffers = buffers_of(self._board, line.rank)
        packed = None if buffers is None else self._mail.pack(buffers, frames, {})
        row = row_of(self._board, line.rank)
        if not line.came:
            if near and self._memory is not None:
                self._memory.set_row(line.rank, row)  # what an earlier life left there is not true any more
                line.near, line.row = True, row
                line.mail = Mail(self._site.codec, self._memory.frames(line.rank, at_server=True))
            if self._shards is not None:
                line.mail = Mail(self._site.codec, PartsAtServer(self._shards, line, self._x0))
            line.came = True
            self._later.append(Came(line.rank, how))
        self._outbox.post(line, r.Welcome(row, packed, kernel_id()), frames)

    def _publish(self, rank: int, packed: Any, tensors: list[Any]) -> None:
        if packed is not None:
            x, weight, buffers = self._mail.unpack_pair(packed, tensors, {})
            self._board.publish(rank, None if x is None else Shown(x, weight), buffers)

    def _refuse(self, what: str) -> None:
        self.refused += 1
        if self.refused <= 20:  # named; the rest is counted
            self._outbox.say(r.Noticed(what))

    def other(self, worker: int, message: Any) -> None:
        raise TypeError(f"the server was sent {message!r} by worker {worker}")

    def unread(self, worker: int) -> list[m.FromWorker]:
        while self._take(0.0):
            pass
        mine = [h for h in self._later if isinstance(h, Said) and h.worker == worker]
        self._later = deque(h for h in self._later if h not in mine)
        return [said.message for said in mine]

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
        """The server sums, in worker order."""
        mean = mean_of([a.given for _, a in meeting.given], meeting.weights, meeting.group)
        done(meeting, mean, payload_bytes(mean))

    # -- the control --------------------------------------------------------------------------------------------

    def tell(self, message: m.ToControl) -> None:
        self._outbox.tell(message)

    def record(self, transaction: m.Transaction) -> None:
        self._outbox.record(transaction)

    def announced(self) -> tuple[list[Any], int]:
        rows = [row for more, _ in self._announcements for row in more]
        steps = sum(count for _, count in self._announcements)
        self._announcements = []
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
        self._later = deque(h for h in self._later if isinstance(h, Ordered) or h.worker != worker)

    def pause(self) -> None:
        """Returns when all stand still. They finish the gradients that they are computing."""
        deadline = time.monotonic() + self._site.options.patience_seconds
        for line in self._lines.there():
            line.standing = False
            self._outbox.post(line, r.Stand())
        while any(not line.standing for line in self._lines.there()):
            self._take(_LONG)
            for heard in self._later:
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
        self._later.append(WentAway(worker))

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
