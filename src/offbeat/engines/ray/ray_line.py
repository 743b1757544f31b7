"""The control's line to a server on a cluster. What the server writes down is kept here, and it is told so at once."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import msgpack
from torch import Tensor

from offbeat.core.codec import Codec
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.frames import Frames, WrongMessageError
from offbeat.engines.ray.remote_board import RemoteBoard, set_row
from offbeat.engines.ray.sockets import PeerSocket
from offbeat.engines.ray.wire import Letters
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.messages import FromControl, ToControl, Transaction, Wanted
from offbeat.engines.real.row_logs import read_rows
from offbeat.engines.real.shared_log import SharedLog
from offbeat.engines.real.transport import Closed

_decode = msgpack.Decoder(r.Recorded).decode
_LOOK = 0.02  # seconds between two looks at what we have to say
_DRAIN = 0.3  # seconds in which the last words of a lost server may still arrive


class RayLine:
    """A thread of its own reads it: a server is not to wait while the watcher writes or evaluates."""

    def __init__(
        self,
        socket: PeerSocket,
        letters: Letters,
        board: RemoteBoard,
        codec: Codec,
        end_worker: Callable[[int, int], None],
        notice: Callable[[str], None],
        log: SharedLog | None = None,
        logs: Sequence[SharedLog] = (),
    ) -> None:
        """`log`: where the server writes down what it did, if it is on this machine; `logs`: where workers do."""
        self._logs = logs
        self._socket, self._letters, self._board = socket, letters, board
        self._mail = Mail(codec, Frames())
        self._end_worker, self._notice = end_worker, notice
        self._heard: SimpleQueue[Any] = SimpleQueue()
        self._kept: deque[r.Recorded] = deque()
        self._log, self._reading = log, threading.Lock()
        self._to_say: deque[Any] = deque()
        self._server_gone: float | None = None  # since when
        self._over = threading.Event()
        self._heard_of: dict[tuple[int, int], int] = {}  # the last announcement of each worker and life that is kept
        self._left: list[tuple[int, int, r.Announced]] = []
        self._last_rows: dict[int, r.Row] = {}
        self._thread = threading.Thread(target=self._run, name="line to the server", daemon=True)
        self._thread.start()

    # -- the control's side -------------------------------------------------------------------------------------

    def send(self, order: FromControl | r.WorkerEnded) -> None:
        if self._server_gone is not None:
            raise Closed
        self._to_say.append(order)

    def receive(self, timeout_seconds: float) -> ToControl | None:
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                message, frames = self._heard.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                if self._server_gone is not None and time.monotonic() - self._server_gone > _DRAIN:
                    raise Closed from None
                return None
            if isinstance(message, r.Shows):
                self._show(message, frames)
                continue
            if isinstance(message, Wanted):
                self._board.followed[0] = max(self._board.followed[0], message.now)
            heard: ToControl = message
            return heard

    def committed(self) -> list[Transaction]:
        self._read_log()
        found = []
        while self._kept:
            recorded = self._kept.popleft()
            self._board.followed[0] = recorded.followed
            t = recorded.transaction
            t.rows = [tuple(row) for row in t.rows]
            t.journal = [tuple(entry) for entry in t.journal]  # type: ignore[misc]
            found.append(t)
        return found

    def left(self, rank: int, life: int, announced: list[r.Announced]) -> None:
        """What a worker that has ended had announced, and did not know to be written down."""
        self._left += [(rank, life, a) for a in announced]

    def last_row(self, rank: int, row: r.Row) -> None:
        """The numbers of a worker that ended with the server: newer than what the server had written down."""
        self._last_rows[rank] = row

    def announced(self) -> tuple[list[Any], int]:
        for rank, row in self._last_rows.items():
            set_row(self._board, rank, row)
        self._last_rows = {}
        new = [a for rank, life, a in self._left if a.number > self._heard_of.get((rank, life), 0)]
        self._left = []
        rows, steps = read_rows(self._logs)
        rows += [tuple(row) for a in new for row in a.rows]
        return sorted(rows, key=lambda row: row[:2]), steps + sum(a.steps for a in new)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def server_ended(self) -> None:
        """Its process is gone, by Ray's word."""
        self._server_gone = time.monotonic()

    def _show(self, shows: r.Shows, frames: list[Any]) -> None:
        if shows.snapshot is not None:
            x: Tensor = self._mail.unpack_pair(shows.snapshot, frames, {})
            self._board.set_snapshot(x)
        for i, packed in shows.buffers.items():
            self._board.publish(i, None, self._mail.unpack_pair(packed, frames, {}))

    # -- the thread's -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            while self._to_say:
                self._letters.post(self._socket.send, self._to_say.popleft())
            frames = self._socket.receive(_LOOK)
            self._read_log()
            number = 0
            while frames is not None:
                number = max(number, self._take(frames))
                frames = self._socket.receive(0.0)
            if number:
                self._socket.send(self._letters.seal(r.Kept(number)))

    def _read_log(self) -> None:
        """What the server wrote down before it says something is there before that is heard."""
        with self._reading:
            for message in self._log.read() if self._log is not None else ():
                self._keep(_decode(message))

    def _keep(self, recorded: r.Recorded) -> None:
        for i, row in recorded.rows.items():
            set_row(self._board, i, row)
        self._heard_of.update({(rank, life): last for rank, (life, last) in recorded.heard.items()})
        self._kept.append(recorded)

    def _take(self, frames: list[Any]) -> int:
        """Puts a message where it belongs; the number of the transaction, if it is one."""
        self._read_log()
        try:
            opened = self._letters.open(frames)
        except WrongMessageError as e:
            self._notice(f"a message to the control was refused: {e}")
            return 0
        if opened is None:
            return 0
        _, message, tensors = opened
        if isinstance(message, r.Shows):  # at once, so that older numbers never replace newer ones
            for i, row in message.rows.items():
                set_row(self._board, i, row)
        match message:
            case r.Recorded(number):
                self._keep(message)
                return int(number)
            case r.EndWorker(rank, life):
                self._end_worker(rank, life)
            case r.Noticed(what):
                self._notice(what)
            case _:
                self._heard.put((message, tensors))
        return 0
