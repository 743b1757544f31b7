"""The server's side on a cluster: one socket for all lines, numbers of the board on every message.

What the server does is written down with the control before anybody is answered: answers wait in the outbox until the
control has said that it keeps the transaction they belong to. The server goes on with other messages meanwhile.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from math import inf
from threading import Event
from typing import Any

from offbeat.core.reduction import mean_of, payload_bytes
from offbeat.core.solver import Shown
from offbeat.core.sparse import dense
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.host_clock import kernel_id
from offbeat.engines.ray.remote_board import RemoteBoard, buffers_of, row_of, set_row
from offbeat.engines.ray.sockets import ServerSocket
from offbeat.engines.ray.vetting import vet
from offbeat.engines.ray.wire import Frames, Letters, WrongMessageError, identity_of, key_of, sender_of
from offbeat.engines.real import messages as m
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.mail import Known, Mail
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Came, Closed, Heard, Ordered, Said, WentAway

_LAST_WORDS = 0.5  # seconds in which what a worker said before its end may still arrive
_LONG = 0.5  # seconds between two looks at whether the control is still there


class WorkerLine:
    """The line to one life of one worker."""

    def __init__(self, secret: bytes, rank: int, life: int, x0: Any) -> None:
        self.rank, self.life = rank, life
        self.identity = identity_of(secret, rank, life)
        self.letters = Letters(key_of(secret, rank, life), rank, life, r.HeardByServer, to_server=False)
        self.known: Known = {"x0": x0}
        self.came = False
        self.standing = False
        self.announced = 0  # the number of the last announcement that came,
        self.confirmed = 0  # and of the last one that is written down


class RayHub:
    """A `Hub` over sockets."""

    def __init__(
        self, site: Site, board: RemoteBoard, socket: ServerSocket, secret: bytes, life: int, over: Event
    ) -> None:
        self._site, self._board, self._socket, self._secret, self._over = site, board, socket, secret, over
        self._x0 = dense(site.initial.x)
        self._mail = Mail(site.codec, Frames())
        self._control = Letters(key_of(secret, r.CONTROL, life), r.CONTROL, life, r.OrderedByControl, to_server=False)
        self._control_identity = identity_of(secret, r.CONTROL, life)
        self._lines: dict[int, WorkerLine] = {}
        self._by_identity: dict[bytes, WorkerLine] = {}
        self._last_life: dict[int, int] = {}  # of each worker; what earlier ones still say is refused
        self._later: deque[Heard] = deque()
        self._orders: deque[m.FromControl] = deque()
        self._announcements: list[tuple[list[Any], int]] = []
        self._recorded = self._kept = 0  # transactions sent to the control, and those that it has
        self._outbox: deque[tuple[int, WorkerLine, Any, list[Any]]] = deque()
        self._awaiting: deque[tuple[int, dict[int, int]]] = deque()  # announcements in transactions not kept yet
        self._new_rows: set[int] = set()
        self._ended: deque[tuple[float, int, int]] = deque()  # processes that are gone: when, who, which life
        self._shown: tuple[Any, ...] = ()
        self.refused = 0

    # -- hearing ------------------------------------------------------------------------------------------------

    def next(self, timeout_seconds: float) -> Heard | None:
        self._show_changes()
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
        while not self._orders:
            self._take(_LONG)
        return self._orders.popleft()

    def _take(self, timeout_seconds: float) -> bool:
        """Takes one message, if there is one in time; what it means for the server is put where it will be found."""
        if self._over.is_set():
            raise Closed
        while self._ended and time.monotonic() >= self._ended[0][0]:
            _, rank, life = self._ended.popleft()
            if rank in self._lines and self._lines[rank].life == life:
                self._later.append(WentAway(rank))
        found = self._socket.receive(min(timeout_seconds, _LONG))
        if found is None:
            return False
        identity, frames = found
        if identity == self._control_identity:
            self._obey(frames)
        elif (line := self._by_identity.get(identity)) is not None:
            self._hear(line, frames)
        else:
            self._meet(identity, frames)
        return True

    def _meet(self, identity: bytes, frames: list[Any]) -> None:
        """Somebody we do not know yet: a worker that greets us, or nobody to talk to."""
        try:
            rank, life = sender_of(frames)
        except WrongMessageError:
            rank, life = r.CONTROL, 0
        if not 0 <= rank < self._site.cluster.workers or identity != identity_of(self._secret, rank, life):
            self._refuse("somebody sent a message who is not part of the run")
        elif life <= self._last_life.get(rank, 0):
            self._refuse(f"worker {rank} sent a message from life {life}, which is over")
        else:
            self._hear(self._open_line(rank, life), frames)

    def _open_line(self, rank: int, life: int) -> WorkerLine:
        line = WorkerLine(self._secret, rank, life, self._site.initial.x)
        self._by_identity[line.identity] = self._lines[rank] = line
        self._last_life[rank] = life
        return line

    def _obey(self, frames: list[Any]) -> None:
        try:
            _, order, _ = self._control.open(frames)
        except WrongMessageError as e:
            self._refuse(f"the control's message was refused: {e}")
            return
        match order:
            case r.Kept(number):
                self._keep(number)
            case r.WorkerEnded(rank, life, how):
                if life > self._last_life.get(rank, 0):  # it ended before it could greet us
                    self._open_line(rank, life).came = True
                    self._later.append(Came(rank, how))
                self._ended.append((time.monotonic() + _LAST_WORDS, rank, life))
            case _:
                self._orders.append(order)

    def _hear(self, line: WorkerLine, frames: list[Any]) -> None:
        try:
            envelope, message, tensors = line.letters.open(frames)
            if envelope.row is not None and line.came:
                set_row(self._board, line.rank, envelope.row)
                self._new_rows.add(line.rank)
            self._understand(line, message, tensors)
        except WrongMessageError as e:
            self._refuse(f"a message of worker {line.rank} was refused: {e}")
            self.end(line.rank)

    def _understand(self, line: WorkerLine, message: Any, tensors: list[Any]) -> None:
        match message:
            case r.Hello(how):
                self._welcome(line, how)
            case r.Ping():
                self._post(line, r.Pong(time.monotonic_ns()))
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
                message.payload = self._mail.unpack_pair(message.payload, tensors, line.known)
                self._vet(message.payload)
                self._later.append(Said(line.rank, message))
            case m.Reducing():
                message.given = self._mail.unpack_pair(message.given, tensors, {})
                self._vet(message.given)
                self._later.append(Said(line.rank, message))
            case m.Post():
                message.letter = (*message.letter, tensors)
                self._later.append(Said(line.rank, message))
            case _:
                self._later.append(Said(line.rank, message))

    def _vet(self, payload: Any) -> None:
        vet(payload, self._x0, finite=bool(self._board.loss_limit[0] < inf))

    def _welcome(self, line: WorkerLine, how: str) -> None:
        """A greeting is answered as often as it comes; the worker has come once."""
        frames: list[Any] = []
        buffers = buffers_of(self._board, line.rank)
        packed = None if buffers is None else self._mail.pack(buffers, frames, {})
        if not line.came:
            line.came = True
            self._later.append(Came(line.rank, how))
        self._post(line, r.Welcome(row_of(self._board, line.rank), packed, kernel_id()), frames)

    def _publish(self, rank: int, packed: Any, tensors: list[Any]) -> None:
        if packed is not None:
            x, weight, buffers = self._mail.unpack_pair(packed, tensors, {})
            self._board.publish(rank, None if x is None else Shown(x, weight), buffers)

    def _refuse(self, what: str) -> None:
        self.refused += 1
        if self.refused <= 20:  # named; the rest is counted
            self._tell(r.Noticed(what))

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
        line = self._lines.get(worker)
        if line is None:
            return
        frames: list[Any] = []
        if type(message) is m.Met:
            packed = self._mail.pack(message.mean, frames, {})
            message = m.Met(packed, message.size, message.weight, message.members, message.work)
        self._post(line, message, frames)

    def answer(self, worker: int, value: Any) -> int:
        line = self._lines[worker]
        frames: list[Any] = []
        tree, parts, line.known = self._mail.pack_reply(value, frames, line.known)
        self._post(line, m.Answered((tree, parts)), frames)
        return min(payload_bytes(value), sum(len(f) for f in frames))

    def forward(self, sender: int, to: int, letter: Any) -> None:
        tree, parts, frames = letter
        line = self._lines.get(to)
        if line is not None:
            self._post(line, m.Letter(sender, (tree, parts)), frames)

    def _post(self, line: WorkerLine, message: Any, frames: list[Any] | None = None) -> None:
        """Sends it when all that was done before is written down."""
        self._outbox.append((self._recorded, line, message, frames or []))
        self._flush()

    def _flush(self) -> None:
        while self._outbox and self._outbox[0][0] <= self._kept:
            _, line, message, frames = self._outbox.popleft()
            self._socket.send(line.identity, line.letters.seal(message, frames, look=self._look(line)))

    def _look(self, line: WorkerLine) -> r.Look:
        b = self._board
        return r.Look(
            int(b.zero_ns[0]),
            int(b.paused_ns[0]),
            int(b.work[0]),
            int(b.updates[0]),
            float(b.loss_limit[0]),
            int(b.rest[0]),
            int(b.cancel[line.rank]),
            line.confirmed,
            b.alive.nonzero()[0].tolist(),
        )

    def _show_changes(self) -> None:
        """Tells workers what has changed on the board and cannot wait for the next message."""
        b = self._board
        shown = (int(b.rest[0]), float(b.loss_limit[0]), *b.cancel.tolist())
        if shown != self._shown:
            before, self._shown = self._shown, shown
            everybody = shown[:2] != before[:2]
            for line in list(self._lines.values()):
                if line.came and (everybody or shown[2 + line.rank] != before[2 + line.rank]):
                    self._post(line, r.Looked())

    def sum_up(self, meeting: Meeting, done: Callable[[Meeting, Any, int], None]) -> None:
        """The server sums, in worker order."""
        mean = mean_of([a.given for _, a in meeting.given], meeting.weights, meeting.group)
        done(meeting, mean, payload_bytes(mean))

    # -- the control --------------------------------------------------------------------------------------------

    def tell(self, message: m.ToControl) -> None:
        """What is new on the board goes before."""
        board = self._board
        frames: list[Any] = []
        snapshot = None
        if board.new_snapshot:
            snapshot = self._mail.pack(dense(board.snapshot()), frames, {})
        new = {i: buffers_of(board, i) for i in sorted(board.new_shown)}
        buffers = {i: self._mail.pack(b, frames, {}) for i, b in new.items() if b is not None}
        if snapshot is not None or buffers or self._new_rows:
            self._tell(r.Shows(self._rows(), snapshot, buffers), frames)
        board.new_snapshot = False
        board.new_shown.clear()
        self._tell(message)

    def _tell(self, message: Any, frames: list[Any] | None = None) -> None:
        self._socket.send(self._control_identity, self._control.seal(message, frames or []))

    def _rows(self) -> dict[int, r.Row]:
        rows = {i: row_of(self._board, i) for i in sorted(self._new_rows)}
        self._new_rows.clear()
        return rows

    def record(self, transaction: m.Transaction) -> None:
        self._recorded += 1
        new = [line for line in self._lines.values() if line.announced > line.confirmed]
        self._awaiting.append((self._recorded, {line.rank: line.announced for line in new}))
        heard = {line.rank: (line.life, line.announced) for line in new}
        self._tell(r.Recorded(self._recorded, transaction, self._rows(), heard, float(self._board.followed[0])))

    def _keep(self, number: int) -> None:
        self._kept = max(self._kept, number)
        while self._awaiting and self._awaiting[0][0] <= self._kept:
            for rank, announced in self._awaiting.popleft()[1].items():
                if rank in self._lines:
                    self._lines[rank].confirmed = max(self._lines[rank].confirmed, announced)
        self._flush()

    def announced(self) -> tuple[list[Any], int]:
        rows = [row for more, _ in self._announcements for row in more]
        steps = sum(count for _, count in self._announcements)
        self._announcements = []
        return sorted(rows, key=lambda row: row[:2]), steps

    # -- processes ----------------------------------------------------------------------------------------------

    def lost(self, worker: int) -> None:
        line = self._lines.pop(worker)
        del self._by_identity[line.identity]
        self._later = deque(h for h in self._later if isinstance(h, Ordered) or h.worker != worker)

    def pause(self) -> None:
        """Returns when all stand still. They finish the gradients that they are computing."""
        deadline = time.monotonic() + self._site.options.patience_seconds
        for line in self._lines.values():
            line.standing = False
            if line.came:
                self._post(line, r.Stand())
        while any(line.came and not line.standing for line in self._lines.values()):
            self._take(_LONG)
            for heard in self._later:
                if isinstance(heard, WentAway):
                    self._lines[heard.worker].standing = True  # for good
            if time.monotonic() > deadline:
                return  # whoever does not answer is found out when the run goes on

    def resume(self) -> None:
        for line in self._lines.values():
            if line.came:
                self._post(line, r.Resume())

    def end(self, worker: int) -> None:
        """It may be where nobody reaches it: so it is gone for us at once."""
        line = self._lines[worker]
        self._tell(r.EndWorker(worker, line.life))
        self._later.append(WentAway(worker))

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        while True:
            time.sleep(_LONG)

    def shared(self) -> None:
        return None

    def share(self, x: Any, version: int) -> None:
        raise Closed
