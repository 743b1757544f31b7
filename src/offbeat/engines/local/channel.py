"""Small messages between the processes of one run, over socket pairs that nobody else can see. Vectors go by memory."""

import array
import select
import socket
import time
from typing import Any

from msgspec import msgpack

from offbeat.engines.real.pieces import LONGEST, Assembly, pieces
from offbeat.engines.real.transport import Closed

_encode = msgpack.Encoder().encode


class Channel:
    """One end of a pair: whole messages in order. The end of the other process is seen at once.

    `hears` is the type, or the union of types, of the messages that come.
    """

    def __init__(self, sock: socket.socket, hears: Any) -> None:
        self.sock = sock
        self._decode = msgpack.Decoder(hears).decode
        self._coming = Assembly()
        self._comes = select.poll()
        self._comes.register(sock, select.POLLIN)

    @staticmethod
    def pair(one_hears: Any, other_hears: Any) -> tuple["Channel", "Channel"]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(one, one_hears), Channel(other, other_hears)

    @staticmethod
    def of(fd: int, hears: Any) -> "Channel":
        """Around a descriptor that another process has handed over."""
        return Channel(socket.socket(fileno=fd), hears)

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def send(self, message: Any, *fds: int) -> None:
        """Waits while the other end is behind."""
        *first, last = pieces(_encode(message))
        try:
            for piece in first:
                self.sock.sendall(piece)
            if fds:
                self.sock.sendmsg([last], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            else:
                self.sock.sendall(last)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def receive(self, timeout_seconds: float | None = None) -> Any:
        """The next message; None when there is none in time."""
        return self.receive_with_fds(timeout_seconds, 0)[0]

    def receive_with_fds(self, timeout_seconds: float | None, count: int) -> tuple[Any, list[int]]:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
                if not self._comes.poll(left * 1000):
                    return None, []
            fds: list[int] = []
            try:
                if count:
                    data, fds, _, _ = socket.recv_fds(self.sock, LONGEST, count)
                else:
                    data = self.sock.recv(LONGEST)
            except ConnectionResetError:
                continue  # it has gone without reading all of ours; what it said before that is still to come
            if not data:
                raise Closed
            whole = self._coming.take(data)
            if whole is not None:
                return self._decode(whole), fds
