"""The server's vectors where their parts lie on shards: arithmetic becomes instructions, in the order of the rule."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from offbeat.core.codec import Codec
from offbeat.core.errors import RuleError
from offbeat.core.parted import PartedVector
from offbeat.engines.ray import shard_messages as s

_STATE = 1000  # numbers set aside for the vectors that an optimizer keeps


class Shards(Protocol):
    """All shards of a run."""

    def tell(self, instruction: s.Instruction) -> None:
        """Has it done by every shard, after all it was told before."""

    def put(self, number: int, x: Tensor) -> None:
        """Gives each its part of x."""

    def fetch(self, number: int) -> Tensor:
        """The parts of a vector, put together."""

    def optimizer(self, first: int) -> tuple[Any, dict[str, int], dict[str, Tensor]]:
        """What the optimizer keeps: a tree, its vectors by number from `first` on, and its other tensors."""

    def load_optimizer(self, tree: Any, numbers: dict[str, int], others: dict[str, Tensor]) -> None: ...


class ShardHome:
    """A `VectorHome` of shards."""

    def __init__(self, shards: Shards, like: Tensor, codec: Codec) -> None:
        self.like, self._shards, self._codec = like, shards, codec
        self._last = 0
        self._released: list[int] = []

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _made(self, number: int) -> PartedVector:
        """They let go of vectors when they are told something else anyway."""
        if self._released:
            released, self._released = self._released, []
            self._shards.tell(s.LetGo(released))
        return PartedVector(self, number)

    def lodge(self, x: Any) -> Any:
        """What stands for x, whose parts go to the shards; other tensors as they are."""
        if not isinstance(x, Tensor) or x.shape != self.like.shape or x.dtype != self.like.dtype:
            return x
        number = self._number()
        self._shards.put(number, x)
        return self._made(number)

    def taken(self, worker: int, life: int, part: int, *, finite: bool) -> PartedVector:
        """What a worker has sent to the shards."""
        number = self._number()
        self._shards.tell(s.TakePush(number, worker, life, part))
        vector = self._made(number)
        vector.finite = finite
        return vector

    def compute(self, operation: str, operands: tuple[Any, ...], options: Mapping[str, float]) -> PartedVector:
        number = self._number()
        given = [_operand(a, operation) for a in operands]
        self._shards.tell(s.Compute(number, operation, given, dict(options)))
        return self._made(number)

    def fetch(self, vector: PartedVector) -> Tensor:
        return self._shards.fetch(vector.number)

    def release(self, number: int) -> None:
        self._released.append(number)

    def start_optimizer(self, x: PartedVector) -> None:
        self._shards.tell(s.Begin(x.number))

    def step(self, g: PartedVector, factor: float, work: float) -> PartedVector:
        number = self._number()
        self._shards.tell(s.Step(number, g.number, factor, work))
        return self._made(number)

    def direction(self, g: PartedVector) -> PartedVector:
        number = self._number()
        self._shards.tell(s.Direction(number, g.number))
        return self._made(number)

    def optimizer_state(self) -> Any:
        first, self._last = self._last + 1, self._last + _STATE
        tree, numbers, others = self._shards.optimizer(first)
        vectors = {name: self._made(number) for name, number in numbers.items()}
        return self._codec.decode(tree, {**others, **vectors})

    def load_optimizer(self, saved: Any) -> None:
        tensors: dict[str, Any] = {}
        tree = self._codec.encode(saved, tensors)
        numbers = {name: t.number for name, t in tensors.items() if isinstance(t, PartedVector)}
        self._shards.load_optimizer(tree, numbers, {name: t for name, t in tensors.items() if name not in numbers})


def _operand(a: Any, operation: str) -> s.Numbered | float:
    if isinstance(a, PartedVector):
        return s.Numbered(a.number)
    if isinstance(a, int | float):
        return a
    raise RuleError(f"{operation} of a vector that lies in parts (ray.shards) takes numbers, not a {type(a).__name__}")
