"""What the server says on a cluster: to the control at once, to workers when the control has all that was done before.

Answers wait in the outbox until the control has said that it keeps the transaction they belong to. The server goes on
with other messages meanwhile.
"""

from collections import deque
from functools import partial
from typing import Any

from msgspec import msgpack

from offbeat.core.sparse import dense
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.remote_board import RemoteBoard, buffers_of, row_of
from offbeat.engines.ray.sockets import ServerSocket
from offbeat.engines.ray.wire import Letters, identity_of, key_of
from offbeat.engines.ray.worker_lines import WorkerLine, WorkerLines
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.messages import ToControl, Transaction
from offbeat.engines.real.shared_log import SharedLog

_encode = msgpack.Encoder().encode


class Outbox:
    """Everything that leaves the server."""

    def __init__(
        self,
        socket: ServerSocket,
        secret: bytes,
        life: int,
        board: RemoteBoard,
        lines: WorkerLines,
        mail: Mail,
        log: SharedLog | None = None,
    ) -> None:
        """`log`: memory that the control shares with us; what is there, it has."""
        self._socket, self._board, self._lines, self._mail, self._log = socket, board, lines, mail, log
        self.control = Letters(key_of(secret, r.CONTROL, life), r.CONTROL, life, r.OrderedByControl, to_server=False)
        self.control_identity = identity_of(secret, r.CONTROL, life)
        self.new_rows: set[int] = set()
        """Workers whose numbers the control has not been told."""
        self._recorded = self._kept = 0  # transactions sent to the control, and those that it has
        self._waiting: deque[tuple[int, WorkerLine, Any, list[Any]]] = deque()
        self._awaiting: deque[tuple[int, dict[int, int]]] = deque()  # announcements in transactions not kept yet

    # -- to workers ---------------------------------------------------------------------------------------------

    def post(self, line: WorkerLine, message: Any, frames: list[Any] | None = None) -> None:
        """Sends it when all that was done before is written down."""
        self._waiting.append((self._recorded, line, message, frames or []))
        self._flush()

    def _flush(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._kept:
            _, line, message, frames = self._waiting.popleft()
            line.letters.post(partial(self._socket.send, line.identity), message, frames, look=self._look(line))

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

    # -- to the control -----------------------------------------------------------------------------------------

    def tell(self, message: ToControl) -> None:
        """What is new on the board goes before."""
        board = self._board
        frames: list[Any] = []
        snapshot = None
        if board.new_snapshot:
            snapshot = self._mail.pack(dense(board.snapshot()), frames, {})
        new = {i: buffers_of(board, i) for i in sorted(board.new_shown)}
        buffers = {i: self._mail.pack(b, frames, {}) for i, b in new.items() if b is not None}
        if snapshot is not None or buffers or self.new_rows:
            self.say(r.Shows(self._rows(), snapshot, buffers), frames)
        board.new_snapshot = False
        board.new_shown.clear()
        self.say(message)

    def say(self, message: Any, frames: list[Any] | None = None) -> None:
        self.control.post(partial(self._socket.send, self.control_identity), message, frames or [])

    def _rows(self) -> dict[int, r.Row]:
        rows = {i: row_of(self._board, i) for i in sorted(self.new_rows)}
        self.new_rows.clear()
        return rows

    # -- what is written down -----------------------------------------------------------------------------------

    def record(self, transaction: Transaction) -> None:
        self._recorded += 1
        new = [line for line in self._lines.by_rank.values() if line.announced > line.confirmed]
        self._awaiting.append((self._recorded, {line.rank: line.announced for line in new}))
        heard = {line.rank: (line.life, line.announced) for line in new}
        recorded = r.Recorded(self._recorded, transaction, self._rows(), heard, float(self._board.followed[0]))
        if self._log is None:
            self.say(recorded)
        else:
            self._log.append(_encode(recorded))
            self.keep(self._recorded)

    def keep(self, number: int) -> None:
        """The control has everything up to this transaction."""
        self._kept = max(self._kept, number)
        while self._awaiting and self._awaiting[0][0] <= self._kept:
            for rank, announced in self._awaiting.popleft()[1].items():
                if rank in self._lines.by_rank:
                    line = self._lines.by_rank[rank]
                    line.confirmed = max(line.confirmed, announced)
        self._flush()
