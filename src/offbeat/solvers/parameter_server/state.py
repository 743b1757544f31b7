"""What a parameter server and its workers keep. A method that keeps more extends these records by named fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from offbeat.core.effects import Gradient, View
from offbeat.core.errors import StoreError
from offbeat.core.solver import World
from offbeat.optim.steppers import AnyStepper


@dataclass(slots=True)
class Held:
    """A gradient that waits for its step, as corrected."""

    worker: int
    gradient: Gradient
    direction: Any
    scale: float


@dataclass(slots=True)
class Server:
    """The server's state."""

    x: Any
    version: int
    opt: AnyStepper
    world: World
    live: set[int]
    held: list[Held] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    """Workers whose answer is held back."""
    sent: dict[int, View] = field(default_factory=dict)
    """What each worker was last sent: the snapshot its gradient will be computed on."""
    samples: int = 0
    """The work clock."""
    absent: set[int] = field(default_factory=set)
    """Workers that have asked, and wait for their introduction."""


@dataclass(slots=True)
class Worker:
    """A worker's state: what it was last sent; None until it has asked."""

    view: View | None
    ready: Gradient | None = None
    """With `overlap`: a gradient that was computed, and travels while the next one is."""


S = TypeVar("S", bound=Server)
W = TypeVar("W", bound=Worker)


def save(s: Server) -> dict[str, Any]:
    """The server's state as plain values, tensors and records; the world is not part of it."""
    kept = {f.name: getattr(s, f.name) for f in fields(s) if f.name not in ("opt", "world")}
    return {**kept, "opt": s.opt.state()}


def load(kind: type[Server], saved: Mapping[str, Any], opt: AnyStepper, world: World) -> Server:
    """The inverse of `save`, with an optimizer that is to go on from what was saved of it."""
    expected = {f.name for f in fields(kind)} - {"world"}
    if saved.keys() != expected:
        differ = ", ".join(sorted(saved.keys() ^ expected))
        raise StoreError(
            f"checkpoint was written by another version of offbeat: its {kind.__name__} differs in {differ}"
        )
    opt.load(saved["opt"])
    return kind(**{**saved, "opt": opt, "world": world})
