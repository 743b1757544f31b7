"""What comes to the server on a cluster: each message is checked, and put where the server's loop will find it."""

import time
from collections import deque
from collections.abc import Callable
from math import inf
from threading import Event
from typing import Any

from offbeat.core.solver import Shown
from offbeat.core.sparse import dense
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.circles_at_server import CirclesAtServer
from offbeat.engines.ray.common_memory import CommonMemory
from offbeat.engines.ray.frames import WrongMessageError
from offbeat.engines.ray.host_clock import kernel_id
from offbeat.engines.ray.outbox import Outbox
from offbeat.engines.ray.remote_board import RemoteBoard, buffers_of, row_of, set_row
from offbeat.engines.ray.shard_frames import PartsAtServer
from offbeat.engines.ray.shard_lines import ShardLines
from offbeat.engines.ray.sockets import ServerSocket
from offbeat.engines.ray.sum_messages import Tell
from offbeat.engines.ray.vetting import vet
from offbeat.engines.ray.worker_lines import WorkerLine, WorkerLines
from offbeat.engines.real import messages as m
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Came, Closed, Heard, Ordered, Said, WentAway

_LAST_WORDS = 0.5  # seconds in which what a worker said before its end may still arrive
_LOOK = 0.01  # seconds between two looks at what workers of this machine have begun
_LONG = 0.5  # seconds between two looks at whether the control is still there


class ServerInbox:
    """Everything that reaches the server."""

    def __init__(
        self,
        site: Site,
        board: RemoteBoard,
        socket: ServerSocket,
        lines: WorkerLines,
        outbox: Outbox,
        mail: Mail,
        over: Event,
        end: Callable[[int], None],
        memory: CommonMemory | None = None,
        shards: ShardLines | None = None,
        sums: CirclesAtServer | None = None,
    ) -> None:
        """`over`: the run is; `end`: how a worker is ended that sends what it must not."""
        self._site, self._board, self._socket, self._lines, self._outbox = site, board, socket, lines, outbox
        self._mail, self._over, self._end = mail, over, end
        self._memory, self._shards, self._sums = memory, shards, sums
        self._x0 = dense(site.initial.x)
        self.later: deque[Heard] = deque()
        """What workers have said and nobody has seen to,"""
        self.orders: deque[m.FromControl] = deque()
        """and what the control has."""
        self.announcements: list[tuple[list[Any], int]] = []
        self._ended: deque[tuple[float, int, int]] = deque()  # processes that are gone: when, who, which life
        self._next_look = 0.0
        self.refused = 0

    def next_order(self) -> m.FromControl:
        while not self.orders:
            self.take(_LONG)
        return self.orders.popleft()

    def unread(self, worker: int) -> list[m.FromWorker]:
        """What a worker has said; nobody else will hear it."""
        while self.take(0.0):
            pass
        mine = [h for h in self.later if isinstance(h, Said) and h.worker == worker]
        self.later = deque(h for h in self.later if h not in mine)
        return [said.message for said in mine]

    def forget(self, worker: int) -> None:
        """What it has said does not matter any more."""
        self.later = deque(h for h in self.later if isinstance(h, Ordered) or h.worker != worker)

    def take(self, timeout_seconds: float) -> bool:
        """Takes one message, if there is one in time; what it means for the server is put where it will be found."""
        if self._over.is_set():
            raise Closed
        while self._ended and time.monotonic() >= self._ended[0][0]:
            _, rank, life = self._ended.popleft()
            line = self._lines.by_rank.get(rank)
            if line is not None and line.life == life:
                if line.near:
                    self._look_at(line)
                self.later.append(WentAway(rank))
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

    def look_round(self) -> None:
        """At all of them, now and then: who begins a gradient does not say so."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK
            for line in self._lines.by_rank.values():
                if line.near:
                    self._look_at(line)

    # -- the control and workers ---------------------------------------------------------------------------------

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
                    self.later.append(Came(rank, how))
                self._ended.append((time.monotonic() + _LAST_WORDS, rank, life))
            case _:
                self.orders.append(order)

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

    def _understand(self, line: WorkerLine, message: Any, tensors: list[Any]) -> None:
        match message:
            case r.Hello(how, near, machine):
                line.machine = machine
                self._welcome(line, how, near)
            case r.Ping():
                self._outbox.post(line, r.Pong(time.monotonic_ns()))
            case r.Began() | r.Looked():
                pass
            case r.Announced(rows, steps, number):
                line.announced = number
                self.announcements.append(([tuple(row) for row in rows], steps))
            case r.Standing(shown):
                line.standing = True
                self._publish(line.rank, shown, tensors)
            case r.Leaving(shown):
                self._publish(line.rank, shown, tensors)
            case m.Called():
                message.payload = line.mail.unpack_pair(message.payload, tensors, line.known)
                self._vet(message.payload)
                self.later.append(Said(line.rank, message))
            case Tell() if self._sums is not None:
                self._sums.tell(line.rank, message)
            case m.Reducing() if self._sums is not None:
                self._sums.vet(message.given, finite=self._finite)
                self.later.append(Said(line.rank, message))
            case m.Reducing():
                message.given = line.mail.unpack_pair(message.given, tensors, {})
                self._vet(message.given)
                self.later.append(Said(line.rank, message))
            case m.Post():
                message.letter = (*message.letter, tensors)
                self.later.append(Said(line.rank, message))
            case _:
                self.later.append(Said(line.rank, message))

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
                line.mail = self._site.mail(self._memory.frames(line.rank, at_server=True))
            if self._shards is not None:
                line.mail = self._site.mail(PartsAtServer(self._shards, line, self._x0))
            line.came = True
            self.later.append(Came(line.rank, how))
        self._outbox.post(line, r.Welcome(row, packed, kernel_id()), frames)

    def _publish(self, rank: int, packed: Any, tensors: list[Any]) -> None:
        if packed is not None:
            x, weight, buffers = self._mail.unpack_pair(packed, tensors, {})
            self._board.publish(rank, None if x is None else Shown(x, weight), buffers)

    # -- numbers of workers --------------------------------------------------------------------------------------

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

    # -- what is refused -----------------------------------------------------------------------------------------

    def _vet(self, payload: Any) -> None:
        vet(payload, self._x0, finite=self._finite)

    @property
    def _finite(self) -> bool:
        """Whether numbers must be."""
        return bool(self._board.loss_limit[0] < inf)

    def _refuse_of(self, line: WorkerLine, why: WrongMessageError) -> None:
        self._refuse(f"a message of worker {line.rank} was refused: {why}")
        self._end(line.rank)

    def _refuse(self, what: str) -> None:
        self.refused += 1
        if self.refused <= 20:  # named; the rest is counted
            self._outbox.say(r.Noticed(what))
