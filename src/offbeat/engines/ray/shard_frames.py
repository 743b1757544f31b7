"""Vectors of messages where they lie in parts on shards: the message has a number, and the parts go another way."""

from collections.abc import Mapping
from threading import Event
from typing import Any

import torch
from torch import Tensor

from offbeat.core.parted import PartedVector, cuts
from offbeat.engines.ray import shard_messages as s
from offbeat.engines.ray.frames import Frames, WrongMessageError
from offbeat.engines.ray.shard_lines import ShardLines
from offbeat.engines.ray.sockets import PeerSocket
from offbeat.engines.ray.wire import Letters
from offbeat.engines.ray.worker_lines import WorkerLine
from offbeat.engines.real.transport import Closed

_LOOK = 0.1  # seconds between two looks at whether it is over


class PartsAtServer(Frames):
    """The server's end, which sees no vector: what a worker has sent to the shards, and what they are to send it."""

    def __init__(self, shards: ShardLines, line: WorkerLine, like: Tensor) -> None:
        self._shards, self._line, self._like = shards, line, like

    def write(self, slot: list[Any], tensors: Mapping[str, Any]) -> list[Any]:
        parts: list[Any] = []
        for name, t in tensors.items():
            if isinstance(t, PartedVector):
                parts.append((name, [self._shards.give(t, self._line)], *_kind(self._like)))
            else:
                parts += super().write(slot, {name: t})
        return parts

    def read(self, slot: list[Any], parts: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, where, *kind in parts:
            if isinstance(where, list):
                found[name] = self._shards.taken(self._line, where[0])
            else:
                found |= super().read(slot, [(name, where, *kind)])
        return found


class PartsAtWorker(Frames):
    """A worker's end: a line to each shard."""

    def __init__(self, lines: list[tuple[PeerSocket, Letters]], like: Tensor, over: Event) -> None:
        self._lines, self._like, self._over = lines, like, over
        self._cuts = cuts(like.numel(), len(lines))
        self._sent = 0
        for socket, letters in lines:
            socket.send(letters.seal(s.WorkerReady()))

    def write(self, slot: list[Any], tensors: Mapping[str, Tensor]) -> list[Any]:
        parts: list[Any] = []
        for name, t in tensors.items():
            if t.shape == self._like.shape and t.dtype == self._like.dtype:
                parts.append((name, [self._send(t)], *_kind(t)))
            else:
                parts += super().write(slot, {name: t})
        return parts

    def _send(self, x: Tensor) -> int:
        self._sent += 1
        for (socket, letters), part in zip(self._lines, self._cuts, strict=True):
            frames: list[Any] = []
            super().write(frames, {"x": x[part]})
            letters.post(socket.send, s.VectorPart(self._sent), frames)
        return self._sent

    def read(self, slot: list[Any], parts: list[Any]) -> dict[str, Tensor]:
        found = {}
        for name, where, *kind in parts:
            if isinstance(where, list):
                found[name] = torch.cat([self._receive(k, where[0]) for k in range(len(self._lines))])
            else:
                found |= super().read(slot, [(name, where, *kind)])
        return found

    def _receive(self, shard: int, number: int) -> Tensor:
        """A shard's next part: it sends them in the order in which the server speaks of them."""
        socket, letters = self._lines[shard]
        part = self._cuts[shard]
        while True:
            if self._over.is_set():
                raise Closed
            frames = socket.receive(_LOOK)
            try:
                opened = None if frames is None else letters.open(frames)
                if opened is None:
                    continue
                if opened[1].number != number:
                    raise WrongMessageError(f"it is part {opened[1].number} where {number} is due")
                place = ("x", 0, _kind(self._like)[0], (part.stop - part.start,))
                return super().read(opened[2], [place])["x"]
            except WrongMessageError:
                raise Closed from None  # something was lost on the way: this life is over

    def close(self) -> None:
        for socket, _ in self._lines:
            socket.close()


def _kind(t: Tensor) -> tuple[str, tuple[int, ...]]:
    return str(t.dtype).removeprefix("torch."), tuple(t.shape)
