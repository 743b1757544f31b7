"""A worker's side on a cluster: one line to the server."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any

from offbeat.core.effects import AllReduce, Send
from offbeat.core.reduction import payload_bytes
from offbeat.core.sparse import dense
from offbeat.core.task import Buffers
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.common_memory import CommonMemory
from offbeat.engines.ray.frames import Frames, WrongMessageError
from offbeat.engines.ray.host_clock import Alignment, kernel_id
from offbeat.engines.ray.remote_board import RemoteBoard, row_of, set_row
from offbeat.engines.ray.shard_frames import PartsAtWorker
from offbeat.engines.ray.sockets import PeerSocket
from offbeat.engines.ray.sum_messages import Disband, SumUp, Told
from offbeat.engines.ray.wire import Letters
from offbeat.engines.real import messages as m
from offbeat.engines.real.in_place import InPlace, needs_one_machine
from offbeat.engines.real.mail import Known
from offbeat.engines.real.row_logs import write_rows
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Closed, RunError

if TYPE_CHECKING:
    from offbeat.engines.ray.circles_at_worker import CirclesAtWorker

_LOOK = 0.1  # seconds between two looks at whether it is over
_AGAIN = 0.5  # seconds until an unanswered greeting is repeated
_PINGS = 8


class RayPort:
    """A `Port` of one socket. What the server shows on its board rides on its messages, and so does our row on ours."""

    def __init__(
        self,
        site: Site,
        board: RemoteBoard,
        rank: int,
        socket: PeerSocket,
        letters: Letters,
        over: Event,
        memory: CommonMemory | None = None,
        parts: PartsAtWorker | None = None,
        machine: str = "",
        among_workers: bool = False,
    ) -> None:
        """`memory`: what we share with the server, if it is on this machine; `parts`: the way of vectors to shards;
        `machine`: our address; `among_workers`: they sum among themselves."""
        self._site, self._board, self._rank = site, board, rank
        self._socket, self._letters, self._over = socket, letters, over
        self._memory, self._machine = memory, machine
        self._sums = self._among_workers() if among_workers else None
        self._mail = site.mail(Frames())
        self._near = self._mail if memory is None else site.mail(memory.frames(rank, at_server=False))
        if parts is not None:
            self._near = site.mail(parts)
        self._known: Known = {"x0": site.initial.x}
        self._inbox: deque[tuple[Any, list[Any]]] = deque()
        self._alignment = Alignment()
        self._unconfirmed: deque[r.Announced] = deque()
        self._announced = 0
        self._in_place: InPlace | None = None
        self._passing: tuple[type, ...] = (r.Looked, r.Resume)  # messages that have done their work when they are read

    # -- coming and going ---------------------------------------------------------------------------------------

    def greet(self, how: str) -> float:
        """Opens the line and takes over what the run knows of this worker; how exactly its clock is known (seconds)."""
        while True:
            self._socket.send(self._letters.seal(r.Hello(how, self._memory is not None, self._machine)))
            if (found := self._next(_AGAIN, r.Welcome)) is not None:
                break
        welcome, frames = found
        set_row(self._board, self._rank, welcome.row)
        buffers: Buffers = None
        if welcome.buffers is not None:
            buffers = self._mail.unpack_pair(welcome.buffers, frames, {})
            self._board.publish(self._rank, None, buffers)
        if welcome.kernel != kernel_id():
            for _ in range(_PINGS):
                asked = time.monotonic_ns()
                self._say(r.Ping())
                while (pong := self._next(_AGAIN, r.Pong)) is None:
                    pass
                self._alignment.learn(asked, pong[0].server_ns, time.monotonic_ns())
        self._passing += (r.Welcome, r.Pong)  # a greeting that was repeated is answered twice
        return self._alignment.error_ns / 1e9

    def leftover(self) -> tuple[r.Row, list[r.Announced]]:
        """At the end: our numbers, and what was announced and may not have been written down."""
        return row_of(self._board, self._rank), list(self._unconfirmed)

    def close(self) -> None:
        if self._sums is not None:
            self._sums.close()

    # -- the server ---------------------------------------------------------------------------------------------

    def call(self, payload: Any, works: list[int]) -> float:
        frames: list[Any] = []
        packed = self._near.pack(payload, frames, self._known)
        sent = self._site.clock.now()
        self._say(m.Called(packed, sent, payload_bytes(payload), works), frames)
        return sent

    def send(self, message: m.FromWorker) -> None:
        if type(message) is m.Left:
            self._show(r.Leaving)
        self._say(message)

    def receive(self, timeout_seconds: float | None) -> Any:
        """Says also when it is asked to stand still, and does."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if self._inbox:
                message, frames = self._inbox.popleft()
                if type(message) is SumUp:
                    self._sum(message)
                    continue
                return self._unpacked(message, frames)
            left = _LOOK if deadline is None else deadline - time.monotonic()
            if not self._take(max(0.0, min(left, _LOOK))) and deadline is not None and time.monotonic() >= deadline:
                return None

    def announce(self, rows: list[Any], steps: int) -> None:
        if self._in_place is not None and self._memory is not None:  # what was done in place is not lost with us
            write_rows(self._memory.logs[self._rank], rows, steps)
            self._write_row()
            return
        self._announced += 1
        announced = r.Announced(rows, steps, self._announced)
        self._unconfirmed.append(announced)
        self._say(announced)

    def began(self) -> None:
        if not self._write_row():
            self._say(r.Began())

    def look(self) -> None:
        while self._take(0.0):
            pass

    # -- others -------------------------------------------------------------------------------------------------

    def reduce(self, effect: AllReduce) -> None:
        if self._sums is not None:
            self._say(self._sums.give(effect))
            return
        frames: list[Any] = []
        size = len(effect.value) if effect.weight and hasattr(effect.value, "__len__") else 0
        given = self._near.pack(effect.value if effect.weight else None, frames, {})
        self._say(m.Reducing(effect.weight, effect.members, effect.group, size, given), frames)

    def _among_workers(self) -> "CirclesAtWorker":
        from offbeat.engines.ray.circles_at_worker import CirclesAtWorker  # not every torch has what it needs

        patience = self._site.options.patience_seconds
        return CirclesAtWorker(self._rank, self._machine, patience, self._say, lambda: self._take(0.0))

    def _sum(self, asked: SumUp) -> None:
        assert self._sums is not None
        at = (self._sums.asked, self._rank, self._letters.life)
        if self._site.fault("kill sum", *at):
            self.die()
        if self._site.fault("hang sum", *at):
            self.hang()
        begun = self._site.clock.now()
        self._sums.sum(asked)
        self._board.communicating[self._rank] += self._site.clock.now() - begun

    def mean(self, met: m.Met) -> Any:
        return met.mean if self._sums is None else self._sums.mean

    def post(self, effect: Send, hear: Callable[[float | None], bool]) -> tuple[int, ...]:
        frames: list[Any] = []
        to = [j for j in effect.to if self._board.alive[j]]
        letter = self._mail.pack(effect.message, frames, {})
        self._say(m.Post(to, letter, payload_bytes(effect.message)), frames)
        return tuple(to)

    def handlers(self, worker: Any) -> Mapping[type, Callable[[Any], Any]]:
        if not needs_one_machine(self._site.solver):
            return {}
        if self._memory is None:
            raise RunError(f"worker {self._rank} does not share memory with the others, and this method needs it")
        self._in_place = InPlace(self._site, self._memory.vectors, self._rank, lambda: worker.rounds)
        return self._in_place.handlers

    def around(self, go: Callable[[], Any]) -> Any:
        return go() if self._in_place is None else self._in_place.around(go)

    def catch_up(self) -> None:
        if self._in_place is not None:
            self._in_place.catch_up()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        while True:
            time.sleep(_LOOK)

    # -- the line -----------------------------------------------------------------------------------------------

    def _say(self, message: Any, frames: list[Any] | None = None) -> None:
        row = None if self._write_row() else row_of(self._board, self._rank)
        self._letters.post(self._socket.send, message, frames or [], row=row)

    def _write_row(self) -> bool:
        """Our numbers, where the server sees them; whether it does."""
        if self._memory is None:
            return False
        self._memory.set_row(self._rank, row_of(self._board, self._rank))
        return True

    def _next(self, timeout_seconds: float, kind: type) -> tuple[Any, list[Any]] | None:
        """The next message of this kind, before anything else matters."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            self._take(_LOOK)
            for k, (message, _) in enumerate(self._inbox):
                if type(message) is kind:
                    found = self._inbox[k]
                    del self._inbox[k]
                    return found
        return None

    def _take(self, timeout_seconds: float) -> bool:
        """Takes one message from the line, if there is one in time, and stands still if it says so."""
        if self._over.is_set():
            raise Closed
        found = self._read(timeout_seconds)
        if found is None:
            return False
        if type(found[0]) is r.Stand:
            self._stand()
        else:
            self._keep(found)
        return True

    def _keep(self, found: tuple[Any, list[Any]]) -> None:
        """For later, unless it has done its work or cannot wait."""
        message = found[0]
        if self._sums is not None and isinstance(message, Told | Disband):
            self._sums.hear(message)
        elif type(message) not in self._passing:
            self._inbox.append(found)

    def _stand(self) -> None:
        """Until it is told to go on. What comes meanwhile is for later."""
        self._show(r.Standing)
        while True:
            if self._over.is_set():
                raise Closed
            found = self._read(_LOOK)
            if found is not None and type(found[0]) is r.Resume:
                return
            if found is not None and type(found[0]) is r.Stand:  # it was told to go on, and that was lost with a server
                self._show(r.Standing)
            elif found is not None:
                self._keep(found)

    def _read(self, timeout_seconds: float) -> tuple[Any, list[Any]] | None:
        frames = self._socket.receive(timeout_seconds)
        if frames is None:
            return None
        try:
            opened = self._letters.open(frames)
        except WrongMessageError:
            raise Closed from None  # something was lost on the way: this life is over
        if opened is None:
            return None  # a part
        envelope, message, tensors = opened
        if envelope.look is not None:
            self._see(envelope.look)
        return message, tensors

    def _see(self, look: r.Look) -> None:
        board = self._board
        board.zero_ns[0], board.paused_ns[0] = look.zero_ns + self._alignment.offset_ns, look.paused_ns
        board.work[0], board.updates[0], board.rest[0] = look.work, look.updates, look.rest
        board.loss_limit[0], board.cancel[self._rank] = look.loss_limit, look.cancel
        board.alive[:] = 0
        board.alive[look.alive] = 1
        while self._unconfirmed and self._unconfirmed[0].number <= look.confirmed:
            self._unconfirmed.popleft()

    def _show(self, kind: type) -> None:
        """What we show of ourselves, where it is new."""
        board, i = self._board, self._rank
        frames: list[Any] = []
        packed = None
        if i in board.new_shown:
            board.new_shown.discard(i)
            shown, buffers = board.published(i), board.published_buffers(i, None)
            x, weight = (None, 1.0) if shown is None else (dense(shown.x), shown.weight)
            packed = self._mail.pack((x, weight, buffers), frames, {})
        self._say(kind(packed), frames)

    def _unpacked(self, message: Any, frames: list[Any]) -> Any:
        if type(message) is m.Answered:
            received = self._site.clock.now()
            tree, parts = message.value
            message.value, self._known = self._near.unpack_reply(tree, parts, frames, self._known)
            message.seconds = self._site.clock.now() - received
        elif type(message) is m.Letter:
            message.letter = self._mail.unpack_pair(message.letter, frames, {})
        elif type(message) is m.Met:
            message.mean = self._near.unpack_pair(message.mean, frames, {})
        return message
