"""Any `nn.Module` + loss + map-style dataset as a task."""

import copy
from collections.abc import Callable, Iterable
from threading import Lock, local
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offbeat.core.effects import Gradient
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Indices
from offbeat.core.layout import Layout
from offbeat.core.task import Buffers, Mapper, Point
from offbeat.tasks.habits import Habits, habits
from offbeat.tasks.samples import Samples, as_samples

Loss = Callable[[Any, Any], Tensor]
"""loss(model output, target): a scalar, the mean over the batch."""

_EVALUATED_AT_ONCE = 500


class ModuleTask:
    """Minimises the mean loss of a model over a training set.

    `model` is a module, or a function without arguments that makes one (then each seed has initial weights of its
    own). Gradients are exact for any number of threads: each thread works on a copy of the module, whose parameters
    are views of the point it was given.
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        train: Any,
        test: Any = None,
        *,
        name: str = "custom",
        defaults: dict[str, Any] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.name, self.loss, self.fingerprint = name, loss, fingerprint
        self.defaults = defaults or {}
        self._make = model
        self._train: Samples = as_samples(train, "train")
        self._test: Samples | None = None if test is None else as_samples(test, "test")
        self._prototype = self._build(0)
        named = [(n, p) for n, p in self._prototype.named_parameters() if p.requires_grad]
        if not named:
            raise ConfigError(f"the model of task {name!r} has no trainable parameters")
        dtypes = {p.dtype for _, p in named}
        if len(dtypes) > 1:
            raise ConfigError(f"all trainable parameters must have one dtype, got {sorted(map(str, dtypes))}")
        self.layout = Layout.of([(n, p.shape) for n, p in named])
        self.nbytes = self.layout.size * named[0][1].element_size()
        self.size: int | None = len(self._train)
        self._threads = local()
        self._lock = Lock()
        self._training: Habits | None = None
        self._evaluating: Habits | None = None

    # -- the protocol -------------------------------------------------------------------------------------------

    def init(self, seed: int) -> Point:
        model = self._prototype if isinstance(self._make, nn.Module) else self._build(seed)
        x = Layout.flatten(p.detach() for p in model.parameters() if p.requires_grad)
        buffers = {n: b.detach().clone() for n, b in model.named_buffers()}
        return Point(x, buffers or None)

    def gradient(self, point: Point, batch: Indices | None, key: int) -> Gradient:
        assert batch is not None
        if self._training is None:
            with self._lock:
                self._training = self._training or habits(lambda p: self._gradient(p, batch), point)
        point, randomness = self._training.prepare(point, key)
        with randomness:
            return self._gradient(point, batch)

    def evaluate(self, point: Point, mapper: Mapper) -> dict[str, float]:
        if self._test is None:
            return {}
        test = self._test
        size = len(test)
        chunks = [np.arange(i, min(i + _EVALUATED_AT_ONCE, size)) for i in range(0, size, _EVALUATED_AT_ONCE)]

        def score(point: Point, indices: Indices) -> tuple[float, int | None]:
            model = self._module(point).eval()
            with torch.no_grad():
                inputs, target = test.batch(indices)
                output = model(inputs)
                return self.loss(output, target).item() * len(indices), _correct(output, target)

        ways = self._evaluating = self._evaluating or habits(lambda p: score(p, chunks[0]), point)

        def keyed_score(indices: Indices) -> tuple[float, int | None]:
            where, randomness = ways.prepare(point, int(indices[0]))
            with randomness:
                return score(where, indices)

        results = mapper(keyed_score, chunks)
        out = {"loss": sum(r[0] for r in results) / size}
        if all(r[1] is not None for r in results):
            out["accuracy"] = sum(r[1] for r in results) / size
        return out

    def describe(self) -> dict[str, Any]:
        held_out = None if self._test is None else len(self._test)
        return {
            "task": self.name,
            "parameters": self.layout.size,
            "train_samples": self.size,
            "test_samples": held_out,
            "chance": self.chance,
            "randomness": "unknown" if self._training is None else self._training.randomness,
        }

    # -- beyond the protocol ------------------------------------------------------------------------------------

    @property
    def chance(self) -> float | None:
        """The accuracy of always naming the commonest class of the held-out set; None without classes."""
        labels = None if self._test is None else self._test.labels
        if labels is None or labels.numel() == 0:
            return None
        return float(torch.bincount(labels).max()) / labels.numel()

    def module(self, point: Point) -> nn.Module:
        """A fresh module that holds the point's parameters and buffers."""
        made = copy.deepcopy(self._prototype)
        with torch.no_grad():
            for p, value in zip(_trainable(made), self.layout.views(point.x), strict=True):
                p.copy_(value)
        _load_buffers(made, point.buffers)
        return made

    # -- inside -------------------------------------------------------------------------------------------------

    def _build(self, seed: int) -> nn.Module:
        if isinstance(self._make, nn.Module):
            return copy.deepcopy(self._make)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = self._make()
        if not isinstance(made, nn.Module):
            raise ConfigError(f"the model must be an nn.Module or a function that makes one, got {type(made).__name__}")
        return made

    def _module(self, point: Point) -> nn.Module:
        """This thread's module, its parameters now views of the point."""
        module: nn.Module | None = getattr(self._threads, "module", None)
        if module is None:
            module = copy.deepcopy(self._prototype)
            self._threads.module, self._threads.params = module, list(_trainable(module))
        for p, view in zip(self._threads.params, self.layout.views(point.x), strict=True):
            p.data = view
        _load_buffers(module, point.buffers)
        return module

    def _gradient(self, point: Point, batch: Indices) -> Gradient:
        model = self._module(point).train()
        inputs, target = self._train.batch(batch)
        output = model(inputs)
        loss = self.loss(output, target)
        grads = torch.autograd.grad(loss, self._threads.params, allow_unused=True, materialize_grads=True)
        value = Layout.flatten(grads)
        buffers: Buffers = None
        if point.buffers is not None:
            buffers = {n: b.detach().clone() for n, b in model.named_buffers()}
        return Gradient(value, loss.item(), len(batch), _correct(output, target), float(value.norm()), buffers)


def _trainable(module: nn.Module) -> Iterable[nn.Parameter]:
    return (p for p in module.parameters() if p.requires_grad)


def _load_buffers(module: nn.Module, buffers: Buffers) -> None:
    if buffers is None:
        return
    with torch.no_grad():
        for name, b in module.named_buffers():
            b.copy_(buffers[name])


def _correct(output: Any, target: Any) -> int | None:
    """How many are right, where the output is one row of scores a sample and the target a class."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor):
        return None
    if output.dim() != 2 or target.dim() != 1 or target.dtype != torch.int64 or len(output) != len(target):
        return None
    return int((output.detach().argmax(1) == target).sum())
