"""What the server, its shards and the workers say to each other about vectors that lie in parts."""

from typing import Any

from msgspec import Struct


def rank_of(shard: int) -> int:
    """The number of a shard among the processes of a run: workers have those from 0 on, the server has -1."""
    return -2 - shard


class Numbered(Struct, tag=True, array_like=True):
    """A vector by its number, among the operands of an operation."""

    number: int


# -- the server to its shards: what to do, in this order --------------------------------------------------------------


class Compute(Struct, tag=True):
    """A new vector, by an operation of `core.parted.OPERATIONS`."""

    out: int
    operation: str
    operands: list[Numbered | float]
    options: dict[str, float] = {}


class TakePush(Struct, tag=True):
    """What a worker sent as its part with this number is that vector."""

    out: int
    worker: int
    life: int
    part: int


class GivePart(Struct, tag=True):
    """Send the vector to a worker, as part with this number."""

    vector: int
    worker: int
    life: int
    part: int


class LetGo(Struct, tag=True):
    """Nobody asks for these any more."""

    vectors: list[int]


class ForgetWorker(Struct, tag=True):
    """This life of a worker is over."""

    worker: int
    life: int


class Begin(Struct, tag=True):
    """The solver's optimizer begins at this vector."""

    x: int


class Step(Struct, tag=True):
    """A step of the optimizer."""

    out: int
    g: int
    factor: float
    work: float


class Direction(Struct, tag=True):
    """Where its step would go."""

    out: int
    g: int


class FetchVector(Struct, tag=True):
    """Send it here."""

    vector: int


class TellOptimizer(Struct, tag=True):
    """What does it keep? Its vectors are to have numbers from `first` on."""

    first: int


Instruction = (
    Compute | TakePush | GivePart | LetGo | ForgetWorker | Begin | Step | Direction | FetchVector | TellOptimizer
)


class Instructions(Struct, tag=True):
    """One after another."""

    all: list[Instruction]


class PutVector(Struct, tag=True):
    """The frame beside it is that vector."""

    out: int


class LoadOptimizer(Struct, tag=True):
    """Go on from what was kept: a tree of the codec, its vectors by number, the rest in the frames beside it."""

    tree: Any
    vectors: dict[str, int]
    parts: list[Any]


HeardByShard = Instructions | PutVector | LoadOptimizer

# -- a shard to the server --------------------------------------------------------------------------------------------


class ShardReady(Struct, tag=True):
    """It is there."""


class HavePart(Struct, tag=True):
    """A worker's part has come, and whether its numbers are finite."""

    worker: int
    life: int
    part: int
    finite: bool


class Fetched(Struct, tag=True):
    """The frame beside it is the vector."""

    vector: int


class OptimizerTold(Struct, tag=True):
    """What the optimizer keeps; see `LoadOptimizer`."""

    tree: Any
    vectors: dict[str, int]
    parts: list[Any]


class ShardFailed(Struct, tag=True):
    """Something was wrong with what it was to do."""

    why: str


class PartRefused(Struct, tag=True):
    """Somebody sent something that is no part of a vector."""

    why: str


HeardFromShard = ShardReady | HavePart | Fetched | OptimizerTold | ShardFailed | PartRefused

# -- workers and shards -----------------------------------------------------------------------------------------------


class WorkerReady(Struct, tag=True):
    """A worker has opened its line."""


class VectorPart(Struct, tag=True):
    """The frame beside it is a shard's part of a vector. Each direction has numbers of its own."""

    number: int


HeardFromWorker = WorkerReady | VectorPart
