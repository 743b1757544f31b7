"""Small messages between the processes of one run, over socket pairs that nobody else can see. Vectors go by memory."""

import array
import select
import socket
import time
from operator import attrgetter
from typing import Any

from msgspec import msgpack
from torch import Tensor

from offbeat.core.codec import Codec
from offbeat.core.effects import Gradient, View
from offbeat.core.errors import OffbeatError
from offbeat.core.sparse import Table
from offbeat.engines.local.memory import Arena

Known = dict[str, Tensor | Table]
"""What the two ends of a line both have, by name."""

_CHUNK = 60_000
_encode, _decode = msgpack.Encoder().encode, msgpack.Decoder().decode  # tuples come as lists


class Closed(Exception):  # noqa: N818 - nothing went wrong here
    """The other end is gone."""


class LocalError(OffbeatError):
    """A process of the run failed."""

    exit_code = 1


class Channel:
    """One end of a pair: whole messages in order. The end of the other process is seen at once."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._parts: list[bytes] = []

    @staticmethod
    def pair() -> tuple["Channel", "Channel"]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(one), Channel(other)

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def send(self, message: tuple[Any, ...], *fds: int) -> None:
        """Waits while the other end is behind; long messages go in pieces, the last one marked."""
        data, at = _encode(message), 0
        try:
            while len(data) - at > _CHUNK:
                self.sock.sendall(b"+" + data[at : at + _CHUNK])
                at += _CHUNK
            last = b"." + (data[at:] if at else data)
            if fds:
                self.sock.sendmsg([last], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            else:
                self.sock.sendall(last)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def receive(self, timeout_seconds: float | None = None) -> tuple[Any, ...] | None:
        """The next message; None when there is none in time."""
        return self.receive_with_fds(timeout_seconds, 0)[0]

    def receive_with_fds(self, timeout_seconds: float | None, count: int) -> tuple[tuple[Any, ...] | None, list[int]]:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self.sock], [], [], left)[0]:
                    return None, []
            fds: list[int] = []
            try:
                if count:
                    data, fds, _, _ = socket.recv_fds(self.sock, _CHUNK + 64, count)
                else:
                    data = self.sock.recv(_CHUNK + 64)
            except ConnectionResetError:
                raise Closed from None
            if not data:
                raise Closed
            if data[:1] == b"." and not self._parts:  # nearly all of them
                return tuple(_decode(memoryview(data)[1:])), fds
            self._parts.append(data[1:])
            if data[:1] == b".":
                whole = b"".join(self._parts)
                self._parts.clear()
                return tuple(_decode(whole)), fds


class Mail:
    """Payloads with tensors, through a slot of shared memory.

    What the other side already has (the vector it was last sent) is named, not copied; of a Table of which it has
    another version, only the rows that changed are written. Gradients and views, which nearly all messages are, go as
    their numbers under a name; all else as a tree of the codec, whose names begin with $.
    """

    def __init__(self, codec: Codec, arena: Arena) -> None:
        self._codec, self._arena = codec, arena

    def pack(self, payload: Any, slot: int, known: Known) -> tuple[Any, list[Any]]:
        at = _known_point(payload, known)
        if at is not None:
            return {"gradient": (at, *_numbers(payload))}, self._arena.write(slot, {"value": payload.value})
        tensors, tables = _apart(known)
        tree = self._codec.encode(payload, tensors, tables)
        new = {name: t for name, t in tensors.items() if name not in known}
        return tree, self._arena.write(slot, new)

    def unpack(self, tree: Any, parts: list[Any], slot: int, known: Known) -> Any:
        if type(tree) is dict and "gradient" in tree:
            value, (at, *numbers) = self._arena.read(slot, parts)["value"], tree["gradient"]
            return Gradient(value, at=known[at], **dict(zip(_NUMBERS, numbers, strict=True)))
        tensors, tables = _apart(known)
        return self._codec.decode(tree, {**tensors, **self._arena.read(slot, parts)}, tables)

    def pack_reply(self, value: Any, slot: int, known: Known) -> tuple[Any, list[Any], Known]:
        """Also says what the other side will have then."""
        if type(value) is View and type(value.x) is Tensor:
            tree, new = {"view": value.version}, {"x": value.x}
            return tree, self._arena.write(slot, new), _known(known, new, {})
        tensors: dict[str, Tensor] = {}
        tables = _apart(known)[1]
        return (
            self._codec.encode(value, tensors, tables),
            self._arena.write(slot, tensors),
            _known(known, tensors, tables),
        )

    def unpack_reply(self, tree: Any, parts: list[Any], slot: int, known: Known) -> tuple[Any, Known]:
        tensors, tables = self._arena.read(slot, parts), _apart(known)[1]
        if type(tree) is dict and "view" in tree:
            return View(tensors["x"], tree["view"]), _known(known, tensors, {})
        value = self._codec.decode(tree, tensors, tables)
        return value, _known(known, tensors, tables)


_NUMBERS = tuple(name for name in Gradient.__struct_fields__ if name not in ("value", "at", "buffers", "parts"))
_numbers = attrgetter(*_NUMBERS)


def _known_point(payload: Any, known: Known) -> str | None:
    """Of a gradient that is a vector and numbers: the name of the vector it was computed on, which both sides have."""
    if type(payload) is not Gradient or type(payload.value) is not Tensor:
        return None
    if payload.parts or payload.buffers is not None:
        return None
    return next((name for name, x in known.items() if x is payload.at), None)


def _apart(known: Known) -> tuple[dict[str, Tensor], dict[str, Table]]:
    tensors = {name: x for name, x in known.items() if isinstance(x, Tensor)}
    return tensors, {name: x for name, x in known.items() if isinstance(x, Table)}


def _known(before: Known, tensors: dict[str, Tensor], tables: dict[str, Table]) -> Known:
    """After a reply: what it held, and the initial point. Tables stay known until there are others."""
    new = {f"r.{name}": x for name, x in tables.items() if name not in before}
    old = {name: x for name, x in before.items() if isinstance(x, Table)}
    return {"x0": before["x0"], **{f"r.{name}": t for name, t in tensors.items()}, **(new or old)}
