"""Messages as frames: an authenticated head, and the tensors beside it.

The head holds everything but the tensors, and a code (BLAKE2b with a key that only the two ends have) over all of it:
who sends, which life, which number, how long each frame is. So nobody without the key can make, repeat or reorder a
message. Tensors themselves are protected on the way only by encryption, where it is on.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import MsgspecError, Raw, msgpack

from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.frames import IncomingParts, WrongMessageError
from offbeat.engines.ray.ray_messages import Look, Row

PART = 4 << 20  # bytes of tensors from which a message goes in parts, and of each part
_CODE = 16  # bytes of the authentication code
_encode = msgpack.Encoder().encode
_open_envelope = msgpack.Decoder(r.Envelope).decode
Opened = tuple[r.Envelope, Any, list[Any]]


class Letters:
    """One direction of one line: seals what goes out, opens what comes in."""

    def __init__(self, key: bytes, worker: int, life: int, hears: Any, *, to_server: bool) -> None:
        """`to_server`: whether what is sent goes there; a message sent back to its sender is no message."""
        self.worker, self.life = worker, life
        self._out, self._in = _direction(key, to_server), _direction(key, not to_server)
        self._decode = msgpack.Decoder(hears | r.NextPart).decode
        self._sent = self._received = 0
        self._parts: tuple[tuple[r.Envelope, Any], IncomingParts] | None = None  # of a message that has begun to come

    def post(
        self,
        send: Callable[[list[Any]], None],
        message: Any,
        tensors: Sequence[Any] = (),
        row: Row | None = None,
        look: Look | None = None,
    ) -> None:
        """Sends a message; long ones in parts, so that the other end takes in the first while the rest is under way."""
        if sum(len(t) for t in tensors) <= PART:
            send(self.seal(message, tensors, row, look))
            return
        send(self.seal(message, tensors, row, look, apart=True)[:1])
        for t in tensors:
            for at in range(0, len(t), PART):
                send(self.seal(r.NextPart(), [t[at : at + PART]]))

    def seal(
        self,
        message: Any,
        tensors: Sequence[Any] = (),
        row: Row | None = None,
        look: Look | None = None,
        *,
        apart: bool = False,
    ) -> list[Any]:
        self._sent += 1
        sizes = [len(t) for t in tensors]
        body = Raw(_encode(message))
        head = _encode(r.Envelope(self.worker, self.life, self._sent, sizes, row, look, body, apart))
        return [_code(self._out, head) + head, *tensors]

    def open(self, frames: Sequence[Any]) -> Opened | None:
        """The envelope, the message and its tensors; None while parts of it are missing; WrongMessageError for anything
        else."""
        envelope, message, tensors = self._open(frames)
        if self._parts is not None:
            if type(message) is not r.NextPart:
                raise WrongMessageError("a message came before the last part of the one before")
            whole, parts = self._parts
            if not parts.take(tensors):
                return None
            self._parts = None
            return whole[0], whole[1], parts.tensors
        if type(message) is r.NextPart:
            raise WrongMessageError("it is a part of nothing")
        if envelope.apart:
            self._parts = (envelope, message), IncomingParts(envelope.sizes)
            return None
        return envelope, message, tensors

    def _open(self, frames: Sequence[Any]) -> Opened:
        head = bytes(memoryview(frames[0])) if frames else b""
        code, head = head[:_CODE], head[_CODE:]
        if not hmac.compare_digest(code, _code(self._in, head)):
            raise WrongMessageError("it is not authentic")
        try:
            envelope = _open_envelope(head)
            message = self._decode(envelope.body)
        except MsgspecError as e:
            raise WrongMessageError(f"it cannot be read: {e}") from None
        if (envelope.worker, envelope.life) != (self.worker, self.life):
            raise WrongMessageError(f"it is of life {envelope.life} of worker {envelope.worker}")
        if self._received and envelope.sequence != self._received + 1:  # greetings before we listened do not count
            raise WrongMessageError(f"it is number {envelope.sequence} where {self._received + 1} is due")
        tensors = list(frames[1:])
        if [len(memoryview(t)) for t in tensors] != ([] if envelope.apart else envelope.sizes):
            raise WrongMessageError("its frames are not as long as it says")
        self._received = envelope.sequence
        return envelope, message, tensors


def sender_of(frames: Sequence[Any]) -> tuple[int, int]:
    """Who a message says it is of, worker and life: nothing is believed yet."""
    try:
        envelope = _open_envelope(bytes(memoryview(frames[0]))[_CODE:])
    except (MsgspecError, IndexError) as e:
        raise WrongMessageError(f"it cannot be read: {e}") from None
    return envelope.worker, envelope.life


def key_of(secret: bytes, worker: int, life: int) -> bytes:
    """The key of one life of one worker's line, from the run's secret."""
    return _derive(secret, b"key", worker, life)


def identity_of(secret: bytes, worker: int, life: int) -> bytes:
    """The name of its socket: nobody else can guess it, and so take its place."""
    return b"i" + _derive(secret, b"identity", worker, life)[:15]


def shard_secret(secret: bytes, shard: int, life: int) -> bytes:
    """From which the keys of a shard's lines to workers come, in one life of its server."""
    return _derive(secret, b"shard", shard, life)


def _derive(secret: bytes, what: bytes, worker: int, life: int) -> bytes:
    return hashlib.blake2b(b"%s %d %d" % (what, worker, life), key=secret, digest_size=32).digest()


def _direction(key: bytes, to_server: bool) -> bytes:
    return hashlib.blake2b(b"to server" if to_server else b"from server", key=key, digest_size=32).digest()


def _code(key: bytes, head: bytes) -> bytes:
    return hashlib.blake2b(head, key=key, digest_size=_CODE).digest()
