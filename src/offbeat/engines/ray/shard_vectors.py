"""A shard's part of every vector that there is, and what is done with them."""

from typing import Any

import torch
from torch import Tensor

from offbeat.core.codec import Codec
from offbeat.core.parted import OPERATIONS
from offbeat.core.solver import Solver, World
from offbeat.engines.ray import shard_messages as s


class ShardVectors:
    """Does what it is told, in that order; the other shards are told the same, and so never disagree."""

    def __init__(self, solver: Solver, world: World, codec: Codec) -> None:
        self._solver, self._world, self._codec = solver, world, codec
        self.vectors: dict[int, Tensor] = {}
        self._optimizer: Any = None

    def carry_out(self, told: s.Compute | s.LetGo | s.Begin | s.Step | s.Direction) -> None:
        vectors = self.vectors
        match told:
            case s.Compute(out, operation, operands, options):
                given = [vectors[a.number] if isinstance(a, s.Numbered) else a for a in operands]
                vectors[out] = OPERATIONS[operation](*given, **options)
            case s.LetGo(numbers):
                for number in numbers:
                    vectors.pop(number, None)
            case s.Begin(x):
                self._optimizer = self._solver.server_optimizer(vectors[x], self._world)  # type: ignore[attr-defined]
            case s.Step(out, g, factor, work):
                vectors[out] = self._optimizer.step(vectors[g], factor, work)
            case s.Direction(out, g):
                vectors[out] = self._optimizer.direction(vectors[g])

    def optimizer_state(self, first: int) -> tuple[Any, dict[str, int], dict[str, Tensor]]:
        """A tree of the codec; the numbers of its vectors, which are kept here; and its other tensors."""
        tensors: dict[str, Tensor] = {}
        tree = self._codec.encode(self._optimizer.state(), tensors)
        numbers = {name: first + k for k, (name, t) in enumerate(tensors.items()) if t.dim()}
        for name, number in numbers.items():
            self.vectors[number] = tensors.pop(name)
        return tree, numbers, tensors

    def load_optimizer(self, tree: Any, numbers: dict[str, int], others: dict[str, Tensor]) -> None:
        found = {name: self.vectors[number] for name, number in numbers.items()}
        self._optimizer.load(self._codec.decode(tree, {**found, **others}))


def is_finite(part: Tensor) -> bool:
    if not part.numel():
        return True
    low, high = part.aminmax()
    return bool(torch.isfinite(low) and torch.isfinite(high))
