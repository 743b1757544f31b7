"""Messages as frames: an authenticated head, and the tensors beside it.

The head holds everything but the tensors, and a code (BLAKE2b with a key that only the two ends have) over all of it:
who sends, which life, which number, how long each frame is. So nobody without the key can make, repeat or reorder a
message. Tensors themselves are protected on the way only by encryption, where it is on.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from msgspec import MsgspecError, Raw, msgpack
from torch import Tensor

from offbeat.engines.ray.ray_messages import Envelope, Look, Row

_CODE = 16  # bytes of the authentication code
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
_encode = msgpack.Encoder().encode
_open_envelope = msgpack.Decoder(Envelope).decode


class WrongMessageError(Exception):
    """A message that is refused, and why."""


class Letters:
    """One direction of one line: seals what goes out, opens what comes in."""

    def __init__(self, key: bytes, worker: int, life: int, hears: Any, *, to_server: bool) -> None:
        """`to_server`: whether what is sent goes there; a message sent back to its sender is no message."""
        self.worker, self.life = worker, life
        self._out, self._in = _direction(key, to_server), _direction(key, not to_server)
        self._decode = msgpack.Decoder(hears).decode
        self._sent = self._received = 0

    def seal(
        self, message: Any, tensors: Sequence[Any] = (), row: Row | None = None, look: Look | None = None
    ) -> list[Any]:
        self._sent += 1
        sizes = [len(t) for t in tensors]
        head = _encode(Envelope(self.worker, self.life, self._sent, sizes, row, look, Raw(_encode(message))))
        return [_code(self._out, head) + head, *tensors]

    def open(self, frames: Sequence[Any]) -> tuple[Envelope, Any, list[Any]]:
        """The envelope, the message and the frames with its tensors; WrongMessageError for anything else."""
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
        if [len(memoryview(t)) for t in tensors] != envelope.sizes:
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


class Frames:
    """Places of a message's tensors: the frames beside it. A slot is the list of them."""

    def write(self, slot: list[Any], tensors: Mapping[str, Tensor]) -> list[Any]:
        parts = []
        for name, t in tensors.items():
            flat = t.detach().contiguous().reshape(-1)
            parts.append((name, len(slot), str(t.dtype).removeprefix("torch."), tuple(t.shape)))
            slot.append(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
        return parts

    def read(self, slot: list[Any], parts: list[Any]) -> dict[str, Tensor]:
        """In memory of our own, and aligned: sums could have other bits otherwise."""
        found = {}
        for name, k, dtype, shape in parts:
            if dtype not in _DTYPES or not 0 <= k < len(slot) or any(n < 0 for n in shape):
                raise WrongMessageError(f"it has no tensor {name!r} of {dtype}")
            kind, source = getattr(torch, dtype), np.frombuffer(slot[k], np.uint8)
            if prod(shape) * kind.itemsize != len(source):
                raise WrongMessageError(f"tensor {name!r} has {len(source)} bytes for shape {tuple(shape)} of {dtype}")
            made = torch.empty(len(source), dtype=torch.uint8)
            made.numpy()[:] = source
            found[name] = made.view(kind).reshape(shape)
        return found


def key_of(secret: bytes, worker: int, life: int) -> bytes:
    """The key of one life of one worker's line, from the run's secret."""
    return _derive(secret, b"key", worker, life)


def identity_of(secret: bytes, worker: int, life: int) -> bytes:
    """The name of its socket: nobody else can guess it, and so take its place."""
    return b"i" + _derive(secret, b"identity", worker, life)[:15]


def _derive(secret: bytes, what: bytes, worker: int, life: int) -> bytes:
    return hashlib.blake2b(b"%s %d %d" % (what, worker, life), key=secret, digest_size=32).digest()


def _direction(key: bytes, to_server: bool) -> bytes:
    return hashlib.blake2b(b"to server" if to_server else b"from server", key=key, digest_size=32).digest()


def _code(key: bytes, head: bytes) -> bytes:
    return hashlib.blake2b(head, key=key, digest_size=_CODE).digest()
