"""A vector that lies in parts, elsewhere: a rule computes with it as with any other, and never sees its numbers.

What a rule does to whole vectors component by component (sums, products, an optimizer's step) can be done to each part
by whoever has it, with the same bits. What needs all components at once, such as a norm, is refused by name.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from offbeat.core.errors import RuleError


class VectorHome(Protocol):
    """Who has the parts, and does with them what it is asked in the order in which it is asked."""

    like: Tensor
    """A vector of that kind: its length and type."""

    def compute(self, operation: str, operands: tuple[Any, ...], options: Mapping[str, float]) -> "PartedVector":
        """A new vector, by an operation of `OPERATIONS` on vectors and numbers."""

    def fetch(self, vector: "PartedVector") -> Tensor:
        """All of it, here."""

    def release(self, number: int) -> None:
        """Nobody asks for this vector any more."""

    def start_optimizer(self, x: "PartedVector") -> None:
        """The solver's optimizer begins at x."""

    def step(self, g: "PartedVector", factor: float, work: float) -> "PartedVector":
        """A step of it."""

    def direction(self, g: "PartedVector") -> "PartedVector":
        """Where its step with g will go."""

    def optimizer_state(self) -> Any:
        """What it keeps, as plain values, small tensors and parted vectors."""

    def load_optimizer(self, saved: Any) -> None:
        """The inverse."""


class PartedVector:
    """Known here by a number. It is let go of when nobody refers to it any more."""

    __slots__ = ("__weakref__", "finite", "home", "number")

    def __init__(self, home: VectorHome, number: int, *, finite: bool = True) -> None:
        """`finite`: whether all its numbers are, as far as somebody has looked."""
        self.home, self.number, self.finite = home, number, finite

    def __del__(self) -> None:
        self.home.release(self.number)

    def dense(self) -> Tensor:
        """All of it, here."""
        return self.home.fetch(self)

    @property
    def shape(self) -> torch.Size:
        return self.home.like.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.home.like.dtype

    @property
    def nbytes(self) -> int:
        return self.home.like.nbytes

    def __add__(self, other: Any) -> "PartedVector":
        return self.home.compute("add", (self, other), {})

    def __radd__(self, other: Any) -> "PartedVector":
        return self.home.compute("add", (other, self), {})

    def __sub__(self, other: Any) -> "PartedVector":
        return self.home.compute("sub", (self, other), {})

    def __rsub__(self, other: Any) -> "PartedVector":
        return self.home.compute("sub", (other, self), {})

    def __mul__(self, other: Any) -> "PartedVector":
        return self.home.compute("mul", (self, other), {})

    def __rmul__(self, other: Any) -> "PartedVector":
        return self.home.compute("mul", (other, self), {})

    def __truediv__(self, other: Any) -> "PartedVector":
        return self.home.compute("truediv", (self, other), {})

    def __rtruediv__(self, other: Any) -> "PartedVector":
        return self.home.compute("truediv", (other, self), {})

    def __pow__(self, other: Any) -> "PartedVector":
        return self.home.compute("pow", (self, other), {})

    def __neg__(self) -> "PartedVector":
        return self.home.compute("neg", (self,), {})

    def __abs__(self) -> "PartedVector":
        return self.home.compute("abs", (self,), {})

    abs = __abs__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> "PartedVector":
        name = _TORCH.get(func)
        if name is None:
            raise RuleError(_refusal(getattr(func, "__name__", str(func))))
        found = next(a for a in args if isinstance(a, PartedVector))
        return found.home.compute(name, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuleError(_refusal(name))


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "truediv": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "neg": lambda x: -x,
    "abs": abs,
    "torch.add": torch.add,
    "torch.sub": torch.sub,
    "torch.mul": torch.mul,
    "torch.div": torch.div,
    "torch.abs": torch.abs,
    "torch.sign": torch.sign,
    "torch.sqrt": torch.sqrt,
    "torch.maximum": torch.maximum,
    "torch.minimum": torch.minimum,
}
"""What can be done to each part by itself: as written in a rule, so that the bits are the same."""

_TORCH = {function: name for name, function in OPERATIONS.items() if name.startswith("torch.")}


def _refusal(what: str) -> str:
    return f"the rule asks for {what!r} of a vector that lies in parts (ray.shards): it needs all of it in one place"


def cuts(size: int, parts: int) -> list[slice]:
    """A vector of `size` components in so many parts of about equal length.

    They begin at multiples of 64, if there is enough: kernels treat the end of a vector differently from its middle.
    """
    grain = 64 if size >= 64 * parts else 1
    ends = [round(size * k / parts / grain) * grain for k in range(parts)] + [size]
    return [slice(a, b) for a, b in pairwise(ends)]
