"""What the contract checks look on with: a small noisy task, and a recorder of all that passes through a rule."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from offbeat.core.codec import fields_of
from offbeat.core.effects import Applied, Grad, Gradient, Refused
from offbeat.core.feed import Indices
from offbeat.core.layout import Layout
from offbeat.core.solver import Round, Solver
from offbeat.core.task import Mapper, Point

_SERVER = "the server's state"


class Bowl:
    """f(x) = 1/2 sum_j h_j (x_j - c_j)^2 with noise in the gradient, over a matrix and a vector, in any dtype."""

    name = "bowl"
    size: int | None = None
    layout = Layout.of([("weight", (3, 2)), ("bias", (2,))])

    def __init__(self, dtype: torch.dtype = torch.float64, noise: float = 1.0) -> None:
        self.h = torch.linspace(0.2, 1.0, self.layout.size, dtype=dtype)
        self.c = torch.linspace(-1.0, 1.0, self.layout.size, dtype=dtype)
        self.noise, self.nbytes = noise, self.h.nbytes

    def init(self, seed: int) -> Point:
        return Point(torch.ones_like(self.h))

    def gradient(self, point: Point, batch: Indices | None, key: int) -> Gradient:
        g = self.h * (point.x - self.c)
        noise = torch.randn(len(g), generator=torch.Generator().manual_seed(key), dtype=g.dtype)
        return Gradient(g + self.noise * noise, self.loss(point.x), 1)

    def evaluate(self, point: Point, mapper: Mapper) -> dict[str, float]:
        return {"loss": self.loss(point.x)}

    def loss(self, x: Tensor) -> float:
        return float(0.5 * (self.h * (x - self.c) ** 2).sum())

    def describe(self) -> dict[str, Any]:
        return {"task": self.name}


class Seen:
    """A tensor that a rule was given or has published, and what it held then."""

    __slots__ = ("held", "tensor", "where")

    def __init__(self, tensor: Tensor, where: str) -> None:
        self.tensor, self.held, self.where = tensor, tensor.detach().clone(), where


class Recorder:
    """Stands in for a solver, passes everything on, and remembers every tensor and every effect that it saw.

    States are looked at after each step of the rule: what a rule keeps is as immutable as what it publishes. The one
    exception is an optimizer at work (anything with a method `state`), which owns the vectors that it mutates.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._seen: dict[int, Seen] = {}
        self._gradients: dict[int, tuple[Gradient, Any]] = {}
        self.asked: set[type] = set()
        self.most_gradients = 0
        """Of one round."""
        self.reads_versions = False
        """Whether it says of which version a point is that it wants a gradient at."""
        self.announced_by_server: list[Applied | Refused] = []
        self.announced_by_workers: list[Applied | Refused] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._solver, name)

    @property
    def tensors(self) -> list[Tensor]:
        return [s.tensor for s in self._seen.values()]

    def changed(self) -> list[str]:
        """Where each tensor was seen that holds something else now."""
        records = ["a Gradient, whose value was replaced" for g, v in self._gradients.values() if g.value is not v]
        return records + [s.where for s in self._seen.values() if not torch.equal(s.tensor, s.held)]

    def init_server(self, x0: Any, world: Any) -> Any:
        self._note(x0, "the initial parameters")
        return self._solver.init_server(x0, world)

    def round(self, w: Any) -> Round:
        rule, gradients = self._solver.round(w), 0
        answer: Any = None
        while True:
            try:
                effect = rule.send(answer)
            except StopIteration:
                return
            self.asked.add(type(effect))
            if isinstance(effect, Applied | Refused):
                self.announced_by_workers.append(effect)
            if isinstance(effect, Grad):
                gradients += 1
                self.reads_versions = self.reads_versions or effect.version is not None
                self.most_gradients = max(gradients, self.most_gradients)
            self._note(effect, f"what a worker asked for in {type(effect).__name__}")
            self._note(w, "a worker's state")
            answer = yield effect
            self._note(answer, f"what a worker was given for {type(effect).__name__}")

    def on_call(self, s: Any, worker: int, payload: Any) -> Iterator[Any]:
        self._note(payload, "a message to the server")
        yield from self._watched(s, _SERVER, self._solver.on_call(s, worker, payload))

    def on_message(self, w: Any, sender: int, message: Any) -> Iterator[Any]:
        yield from self._watched(w, "a worker's state", self._solver.on_message(w, sender, message))

    def on_join(self, s: Any, worker: int) -> Iterator[Any]:
        yield from self._watched(s, _SERVER, self._solver.on_join(s, worker))

    def on_lost(self, s: Any, worker: int) -> Iterator[Any]:
        yield from self._watched(s, _SERVER, self._solver.on_lost(s, worker))

    def _watched(self, state: Any, name: str, effects: Iterable[Any]) -> Iterator[Any]:
        for effect in effects:
            if isinstance(effect, Applied | Refused):
                (self.announced_by_server if name == _SERVER else self.announced_by_workers).append(effect)
            self._note(effect, f"a {type(effect).__name__}")
            yield effect
        self._note(state, name)

    def _note(self, node: Any, where: str) -> None:
        if isinstance(node, Tensor):
            if id(node) not in self._seen:  # it is kept, so its id stays its own
                self._seen[id(node)] = Seen(node, where)
            return
        if isinstance(node, Gradient):
            self._gradients.setdefault(id(node), (node, node.value))
        if isinstance(node, dict):
            for value in node.values():
                self._note(value, where)
        elif isinstance(node, list | tuple | set | frozenset):
            for value in node:
                self._note(value, where)
        elif type(node).__module__ != "builtins" and not callable(getattr(node, "state", None)):
            try:
                names = fields_of(type(node))
            except AttributeError:
                return
            for name in names:
                self._note(getattr(node, name, None), where)
