"""Frames over ZeroMQ: one socket at the server for everybody, one at each of the others."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import zmq

from offbeat.engines.ray.common_memory import CommonMemory, Handle, open_near

_ZERO_COPY = 1 << 20  # bytes from which a frame is sent from where it lies: it is never changed after that
_ROOM = 64 << 20  # bytes beyond the vectors that a message may have


class Address(NamedTuple):
    """Where a server is to be found, and its public key where messages are encrypted.

    Those on its machine, `node`, find memory that they share with it, and a Unix socket of this name.
    """

    endpoint: str
    server_key: bytes | None = None
    node: str = ""
    memory: Handle | None = None
    near: str = ""

    def open_memory(self, node: str) -> CommonMemory | None:
        """What we on machine `node` share with the server; None if it is on another one."""
        return open_near(self.memory) if node == self.node else None


class ServerSocket(Protocol):
    """The server's end of all lines. A line is known by the name of the other end's socket."""

    def receive(self, timeout_seconds: float) -> tuple[bytes, list[Any]] | None: ...

    def send(self, identity: bytes, frames: Sequence[Any]) -> None: ...

    def close(self) -> None: ...


class PeerSocket(Protocol):
    """The other end of one line."""

    def receive(self, timeout_seconds: float) -> list[Any] | None: ...

    def send(self, frames: Sequence[Any]) -> None: ...

    def close(self) -> None: ...


class ZmqServer:
    """Bound to one address of this machine, at a free port."""

    def __init__(self, host: str, encrypt: bool, vector_bytes: int) -> None:
        self._context = zmq.Context()
        self.most = _most(vector_bytes)
        self.socket = _prepared(self._context.socket(zmq.ROUTER), vector_bytes)
        self.socket.router_mandatory = 0  # who is gone is noticed elsewhere
        public = None
        if encrypt:
            public, secret = zmq.curve_keypair()
            self.socket.curve_server = True
            self.socket.curve_secretkey = secret
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.address = Address(f"tcp://{host}:{port}", public)

    def receive(self, timeout_seconds: float) -> tuple[bytes, list[Any]] | None:
        if not self.socket.poll(_milliseconds(timeout_seconds)):
            return None
        identity, *frames = self.socket.recv_multipart(copy=False)
        return bytes(identity), [f.buffer for f in frames]

    def send(self, identity: bytes, frames: Sequence[Any]) -> None:
        _send(self.socket, [identity, *frames])

    def close(self) -> None:
        self._context.destroy(linger=1000)


class ZmqPeer:
    """Connected to a server."""

    def __init__(self, address: Address, identity: bytes, vector_bytes: int) -> None:
        self._context = zmq.Context()
        self.socket = _prepared(self._context.socket(zmq.DEALER), vector_bytes)
        self.socket.identity = identity
        if address.server_key is not None:
            self.socket.curve_publickey, self.socket.curve_secretkey = zmq.curve_keypair()
            self.socket.curve_serverkey = address.server_key
        self.socket.connect(address.endpoint)

    def receive(self, timeout_seconds: float) -> list[Any] | None:
        if not self.socket.poll(_milliseconds(timeout_seconds)):
            return None
        return [f.buffer for f in self.socket.recv_multipart(copy=False)]

    def send(self, frames: Sequence[Any]) -> None:
        _send(self.socket, frames)

    def close(self) -> None:
        self._context.destroy(linger=1000)


def wait_for_either(server: ZmqServer, peer: ZmqPeer, timeout_seconds: float) -> None:
    """Until something has come to one of the two, or so long."""
    poller = zmq.Poller()
    poller.register(server.socket, zmq.POLLIN)
    poller.register(peer.socket, zmq.POLLIN)
    poller.poll(_milliseconds(timeout_seconds))


def _prepared(socket: Any, vector_bytes: int) -> Any:
    """A stranger cannot make us take more than a message may have; nobody waits to send."""
    socket.maxmsgsize = _most(vector_bytes)
    socket.sndhwm = socket.rcvhwm = 0
    return socket


def _most(vector_bytes: int) -> int:
    """Bytes of a message."""
    return 8 * vector_bytes + _ROOM


def _send(socket: Any, frames: Sequence[Any]) -> None:
    for k, frame in enumerate(frames):
        more = zmq.SNDMORE if k + 1 < len(frames) else 0
        socket.send(frame, more, copy=len(frame) < _ZERO_COPY)


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000 + 0.49)) if seconds else 0
