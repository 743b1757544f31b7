"""Frames between processes of one machine: through Unix sockets, which wake whom they are for and nobody in between.

The server listens to them beside its network socket. Their name is known to those only who were told of the server, and
processes of other users are not let in; messages are authenticated here as everywhere.
"""

import contextlib
import os
import secrets
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import zmq
from msgspec import MsgspecError, msgpack

from offbeat.engines.ray.sockets import ZmqServer
from offbeat.engines.real.pieces import LONGEST, Assembly, pieces

_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(list[bytes]).decode
_GREETING = 64  # bytes that a caller may use to say who it is
_CREDENTIALS = struct.Struct("3i")  # of the process that calls: its number, user and group
_LINGER = 1.0  # seconds in which what was said last may still leave


class Caller:
    """The server's end of the line to one process. Nobody waits to send: what cannot go now goes when there is room."""

    def __init__(self, sock: socket.socket, most: int) -> None:
        sock.setblocking(False)
        self.sock, self.identity = sock, b""
        self.unsent: deque[bytes] = deque()
        self._coming, self._most = Assembly(), most

    def receive(self) -> list[Any] | None:
        """A message whose last piece is there; EOFError where the line is at its end."""
        try:
            piece = self.sock.recv(LONGEST)
        except ConnectionResetError:  # it has gone without reading all of ours; what it said before is still to come
            piece = self.sock.recv(LONGEST)
        if not piece or self._coming.size > self._most:
            raise EOFError
        if not self.identity:
            self.identity = piece[:_GREETING]
            return None
        whole = self._coming.take(piece)
        return None if whole is None else _decode(whole)

    def flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                self.sock.send(self.unsent[0])
                self.unsent.popleft()


class NearServer:
    """The server's end of all lines: those of this machine, and those over the network."""

    def __init__(self, far: ZmqServer) -> None:
        self._far = far
        self.name = f"offbeat-{secrets.token_hex(16)}"
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bind(_address(self.name))
        self._door.listen()
        self._door.setblocking(False)
        self._by_fd: dict[int, Caller] = {}
        self._by_identity: dict[bytes, Caller] = {}
        self._ready: deque[Any] = deque()  # sockets with something to read
        self._poller = zmq.Poller()
        self._poller.register(far.socket, zmq.POLLIN)
        self._poller.register(self._door.fileno(), zmq.POLLIN)

    def receive(self, timeout_seconds: float) -> tuple[bytes, list[Any]] | None:
        deadline = time.monotonic() + timeout_seconds
        while True:
            while self._ready:
                found = self._read(self._ready.popleft())
                if found is not None:
                    return found
            left = max(0.0, deadline - time.monotonic())
            for ready, event in self._poller.poll(round(left * 1000 + 0.49)):
                if event & zmq.POLLOUT and ready in self._by_fd:
                    self._flush(self._by_fd[ready])
                if event & ~zmq.POLLOUT:
                    self._ready.append(ready)
            if not self._ready and left == 0.0:
                return None

    def _read(self, ready: Any) -> tuple[bytes, list[Any]] | None:
        if ready is self._far.socket:
            return self._far.receive(0.0)
        if ready == self._door.fileno():
            self._welcome()
        elif (caller := self._by_fd.get(ready)) is not None:
            try:
                frames = caller.receive()
            except BlockingIOError:
                return None
            except (EOFError, OSError, MsgspecError):
                self._part(caller)  # whether its process has ended is Ray's to say
                return None
            if caller.identity not in self._by_identity:
                self._by_identity[caller.identity] = caller
            return None if frames is None else (caller.identity, frames)
        return None

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):  # it is gone again
            sock, _ = self._door.accept()
            user = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
            if user != os.getuid():
                sock.close()
                return
            self._by_fd[sock.fileno()] = Caller(sock, self._far.most)
            self._poller.register(sock.fileno(), zmq.POLLIN)

    def _part(self, caller: Caller) -> None:
        fd = caller.sock.fileno()
        self._poller.unregister(fd)
        del self._by_fd[fd]
        if self._by_identity.get(caller.identity) is caller:
            del self._by_identity[caller.identity]
        caller.sock.close()

    def send(self, identity: bytes, frames: Sequence[Any]) -> None:
        caller = self._by_identity.get(identity)
        if caller is None:
            self._far.send(identity, frames)
            return
        caller.unsent.extend(pieces(_encode(frames)))
        self._flush(caller)

    def _flush(self, caller: Caller) -> None:
        try:
            caller.flush()
        except OSError:  # it is gone; what it said last is still to be heard
            caller.unsent.clear()
        self._poller.register(caller.sock.fileno(), zmq.POLLIN | (zmq.POLLOUT if caller.unsent else 0))

    def close(self) -> None:
        deadline = time.monotonic() + _LINGER
        while any(c.unsent for c in self._by_fd.values()) and time.monotonic() < deadline:
            self.receive(0.01)
        for caller in list(self._by_fd.values()):
            self._part(caller)
        self._door.close()
        self._far.close()


class NearPeer:
    """Connected to a server on this machine; OSError if it is not to be found."""

    def __init__(self, name: str, identity: bytes) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._sock.connect(_address(name))
            self._sock.sendall(identity)
        except OSError:
            self._sock.close()
            raise
        self._coming, self._gone = Assembly(), False
        self._comes = select.poll()
        self._comes.register(self._sock, select.POLLIN)

    def receive(self, timeout_seconds: float) -> list[Any] | None:
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._gone:
                time.sleep(left)  # another way than this one tells what is to be done about it
                return None
            if not self._comes.poll(left * 1000):
                return None
            try:
                piece = self._sock.recv(LONGEST)
            except ConnectionResetError:
                continue  # what it said before it went is still to come
            if not piece:
                self._gone = True
            elif (whole := self._coming.take(piece)) is not None:
                return _decode(whole)

    def send(self, frames: Sequence[Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces(_encode(frames)):
                self._sock.sendall(piece)

    def close(self) -> None:
        self._sock.close()


def _address(name: str) -> str:
    """Without a file: it goes with the socket."""
    return f"\0{name}"
