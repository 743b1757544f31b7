"""The server's lines to its shards: they are told what to do in its order, and say which parts have come.

A worker sends the parts of a vector to the shards and all else to the server. The server hears of a message when every
shard has said that it has its part: so that no shard is ever told of something that will not come.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from offbeat.core.codec import Codec
from offbeat.core.errors import RuleError
from offbeat.core.parted import PartedVector, cuts
from offbeat.engines.ray import shard_messages as s
from offbeat.engines.ray.frames import Frames, WrongMessageError
from offbeat.engines.ray.shard_home import ShardHome
from offbeat.engines.ray.sockets import ServerSocket
from offbeat.engines.ray.wire import Letters, identity_of, key_of
from offbeat.engines.ray.worker_lines import WorkerLine
from offbeat.engines.real import messages as m

Call = tuple[WorkerLine, Any, list[Any]]
_LONG = 0.5  # seconds between two looks at whether it is over


class ShardLine:
    """The line to one shard."""

    def __init__(self, secret: bytes, life: int, shard: int) -> None:
        rank = s.rank_of(shard)
        self.shard, self.identity = shard, identity_of(secret, rank, life)
        self.letters = Letters(key_of(secret, rank, life), rank, life, s.HeardFromShard, to_server=False)
        self.there = False


class ShardLines:
    """All `Shards` of a run, over the server's socket."""

    def __init__(self, socket: ServerSocket, secret: bytes, life: int, like: Tensor, count: int, codec: Codec) -> None:
        self._socket, self._like, self._cuts = socket, like, cuts(like.numel(), count)
        self._lines = [ShardLine(secret, life, k) for k in range(count)]
        self._by_identity = {line.identity: line for line in self._lines}
        self.home = ShardHome(self, like, codec)
        self.take: Callable[[float], bool]
        """Takes the next message that comes to the server, whoever sends it. Set by the hub."""
        self._x0: PartedVector | None = None
        self._unsent: list[s.Instruction] = []
        self._frames = Frames()
        self._fetched: dict[int, dict[int, Tensor]] = {}  # parts of a vector, by shard
        self._told: dict[int, tuple[Any, dict[str, int], dict[str, Tensor]]] = {}  # of optimizers, by shard
        self._have: dict[tuple[int, int, int], tuple[int, bool]] = {}  # of a part: how many shards have it; all finite
        self._waiting: dict[tuple[int, int], Call] = {}  # calls whose parts have not all come
        self._given: dict[tuple[int, int], int] = {}  # parts that a life of a worker was sent

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._by_identity

    def assemble(self, x0: Tensor) -> PartedVector:
        """Waits until all are there, and gives them the parameters that everybody begins with."""
        self._until(lambda: all(line.there for line in self._lines))
        self._x0 = self.home.lodge(x0)
        return self._x0

    def lodge(self, x: Any) -> Any:
        """What stands for x, whose parts go to the shards."""
        return self._x0 if x is self._like else self.home.lodge(x)

    # -- what they say ------------------------------------------------------------------------------------------

    def hear(self, identity: bytes, frames: list[Any]) -> list[Call]:
        """A shard's message; calls of workers that are complete with it."""
        line = self._by_identity[identity]
        opened = line.letters.open(frames)
        if opened is None:
            return []
        _, message, tensors = opened
        match message:
            case s.ShardReady():
                line.there = True
            case s.HavePart(worker, life, part, finite):
                count, all_finite = self._have.get((worker, life, part), (0, True))
                self._have[worker, life, part] = count + 1, all_finite and finite
                call = self._waiting.pop((worker, life), None)
                return [call] if call is not None and self.complete(*call) else []
            case s.Fetched(vector):
                mine = self._cuts[line.shard]
                place = ("x", 0, str(self._like.dtype).removeprefix("torch."), (mine.stop - mine.start,))
                self._fetched.setdefault(vector, {})[line.shard] = self._frames.read(tensors, [place])["x"]
            case s.OptimizerTold(tree, vectors, parts):
                self._told[line.shard] = tree, vectors, self._frames.read(tensors, parts)
            case s.PartRefused(why):
                raise WrongMessageError(f"at shard {line.shard}: {why}")
            case s.ShardFailed(why):
                raise RuleError(f"shard {line.shard} of the server failed: {why}")
        return []

    def complete(self, line: WorkerLine, message: Any, tensors: list[Any]) -> bool:
        """Whether all parts of a message are with the shards; if not, it waits for them."""
        if type(message) is not m.Called:
            return True
        parts = [where[0] for _, where, *_ in message.payload[1] if isinstance(where, list)]
        if all(self._have.get((line.rank, line.life, k), (0, True))[0] == len(self._lines) for k in parts):
            return True
        self._waiting[line.rank, line.life] = line, message, tensors
        return False

    def taken(self, line: WorkerLine, part: int) -> PartedVector:
        """What a worker has sent: all shards have it."""
        found = self._have.pop((line.rank, line.life, part), None)
        if found is None:
            raise WrongMessageError(f"there is no part {part}")
        return self.home.taken(line.rank, line.life, part, finite=found[1])

    def forget(self, line: WorkerLine) -> None:
        """This life of a worker is over."""
        key = line.rank, line.life
        self._waiting.pop(key, None)
        self._have = {k: v for k, v in self._have.items() if k[:2] != key}
        self.tell(s.ForgetWorker(*key))

    # -- what they are told -------------------------------------------------------------------------------------

    def tell(self, instruction: s.Instruction) -> None:
        self._unsent.append(instruction)

    def give(self, vector: PartedVector, line: WorkerLine) -> int:
        """Has a vector sent to a worker; the number of the part."""
        key = line.rank, line.life
        self._given[key] = number = self._given.get(key, 0) + 1
        self.tell(s.GivePart(vector.number, *key, number))
        return number

    def flush(self) -> None:
        """They hear what they were told."""
        if self._unsent:
            told, self._unsent = s.Instructions(self._unsent), []
            for line in self._lines:
                self._post(line, told)

    def put(self, number: int, x: Tensor) -> None:
        self.flush()
        for line, part in zip(self._lines, self._cuts, strict=True):
            frames: list[Any] = []
            self._frames.write(frames, {"x": x[part]})
            self._post(line, s.PutVector(number), frames)

    def fetch(self, number: int) -> Tensor:
        self.tell(s.FetchVector(number))
        self.flush()
        self._until(lambda: len(self._fetched.get(number, ())) == len(self._lines))
        parts = self._fetched.pop(number)
        return torch.cat([parts[k] for k in range(len(self._lines))])

    def optimizer(self, first: int) -> tuple[Any, dict[str, int], dict[str, Tensor]]:
        self.tell(s.TellOptimizer(first))
        self.flush()
        self._until(lambda: len(self._told) == len(self._lines))
        told, self._told = self._told, {}
        return told[0]  # what is no vector is the same everywhere

    def load_optimizer(self, tree: Any, numbers: dict[str, int], others: dict[str, Tensor]) -> None:
        self.flush()
        for line in self._lines:
            frames: list[Any] = []
            parts = self._frames.write(frames, others)
            self._post(line, s.LoadOptimizer(tree, numbers, parts), frames)

    def _post(self, line: ShardLine, message: s.HeardByShard, frames: list[Any] | None = None) -> None:
        line.letters.post(partial(self._socket.send, line.identity), message, frames or [])

    def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.take(_LONG)
