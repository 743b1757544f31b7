"""Any `nn.Module` + loss + map-style dataset as a task."""

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from offbeat.data.labels import Predictions, classified, correct, refuse_one_class, refuse_out_of_range
from offbeat.data.samples import Collate, Samples, Subset, as_samples
from offbeat.tasks.calling import call, one_number, refuse_gpu
from offbeat.tasks.habits import Habits, habits
from offbeat.tasks.scores import class_scores

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
        about: Mapping[str, Any] | None = None,
        classes: Sequence[str] | None = None,
        collate: Collate | None = None,
    ) -> None:
        if collate is not None and not callable(collate):
            raise ConfigError(f"collate must be a function of a list of samples, got {collate!r}")
        self.name, self.loss, self.fingerprint, self.collate = name, loss, fingerprint, collate
        self.defaults = defaults or {}
        self.classes = classes
        self._about = dict(about or {})
        self._make = model
        self._usual = torch.get_default_dtype()  # a factory's models are made in it, whenever they are made
        self._prototype = self._build(0)
        named = [(n, p) for n, p in self._prototype.named_parameters() if p.requires_grad]
        if not named:
            raise ConfigError(f"the model of task {name!r} has no trainable parameters")
        dtypes = {p.dtype for _, p in named}
        if len(dtypes) > 1:
            raise ConfigError(f"all trainable parameters must have one dtype, got {sorted(map(str, dtypes))}")
        floats = named[0][1].dtype
        if floats not in (torch.float32, torch.float64):
            raise ConfigError(
                f"a model's parameters must be float32 or float64, got {str(floats).removeprefix('torch.')}"
            )
        self._train: Samples = as_samples(train, "train", floats, collate)
        self._test: Samples | None = None if test is None else as_samples(test, "test", floats, collate)
        self._validation: Samples | None = None
        refuse_one_class(self._train.labels, name)
        self.layout = Layout.of([(n, p.shape) for n, p in named])
        self.nbytes = self.layout.size * named[0][1].element_size()
        self.size: int | None = len(self._train)
        self._threads = local()
        self._lock = Lock()
        self._fits = False  # whether the labels have been seen to fit the model's outputs
        self._training: Habits | None = None
        self._evaluating: Habits | None = None
        self._latest: tuple[Samples, Point, Predictions] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: all but what belongs to the threads of this one."""
        return {k: v for k, v in vars(self).items() if k not in ("_threads", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._threads, self._lock = local(), Lock()

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
        """Loss and accuracy on the validation set, or on the test set where none is held out.

        The module is in evaluation mode: dropout is off, and BatchNorm uses the running statistics of the point's
        buffers, which an engine takes as the mean of its workers' own.
        """
        samples = self._test if self._validation is None else self._validation
        if samples is None:
            return {}
        found = self._predictions(samples, point, mapper)
        out = {"loss": found.loss}
        if found.predicted is not None:
            out["accuracy"] = float((found.predicted == found.truth).mean())
        return out

    def assess(self, point: Point, mapper: Mapper) -> dict[str, Any]:
        """The full evaluation at the end of a run: each held-out set, each class. Plain values for the run folder."""
        out: dict[str, Any] = {}
        for which, samples in (("validation", self._validation), ("test", self._test)):
            if samples is None:
                continue
            found = self._predictions(samples, point, mapper)
            out[which] = {"loss": found.loss, "samples": len(samples)}
            if found.predicted is not None and found.truth is not None:
                out[which] |= class_scores(found.truth, found.predicted, found.num_classes, self.classes)
        return out

    def describe(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "parameters": self.layout.size,
            "train_samples": self.size,
            "validation_samples": None if self._validation is None else len(self._validation),
            "test_samples": None if self._test is None else len(self._test),
            "chance": self.chance,
            "randomness": self.randomness,
            **self._about,
        }

    # -- beyond the protocol ------------------------------------------------------------------------------------

    @property
    def data_digests(self) -> list[str]:
        """What training set and test set hold, where that is cheap to say: they are tensors, and not very large."""
        found = (getattr(samples, "digest", None) for samples in (self._train, self._test))
        return [digest for digest in found if digest is not None]

    @property
    def randomness(self) -> str:
        """What the model draws: "none", "keyed" to the batch, or "global"; "unknown" before the first gradient."""
        return "unknown" if self._training is None else self._training.randomness

    @property
    def labels(self) -> Indices | None:
        """The class of every training sample, where there are classes."""
        return self._train.labels

    @property
    def chance(self) -> float | None:
        """The accuracy of always naming the commonest class of the held-out set; None without classes."""
        samples = self._test if self._validation is None else self._validation
        labels = None if samples is None else samples.labels
        if labels is None or labels.size == 0 or labels.min() < 0:
            return None
        return float(np.bincount(labels).max()) / labels.size

    def hold_out(self, held_out: Indices) -> "ModuleTask":
        """The same task trained without these samples, and evaluated on them; the test set waits for the end."""
        made = copy.copy(self)
        kept = np.setdiff1d(np.arange(len(self._train)), held_out)
        made._train, made._validation = Subset(self._train, kept), Subset(self._train, held_out)
        made.size = len(kept)
        if self.fingerprint is not None:
            made.fingerprint = f"{self.fingerprint}/without {hashlib.sha256(held_out.tobytes()).hexdigest()[:12]}"
        made._threads, made._lock = local(), Lock()
        refuse_one_class(made._train.labels, self.name)
        return made

    def module(self, point: Point) -> nn.Module:
        """A fresh module that holds the point's parameters and buffers, in evaluation mode: as it was evaluated."""
        made = copy.deepcopy(self._prototype)
        with torch.no_grad():
            for p, value in zip(_trainable(made), self.layout.views(point.x), strict=True):
                p.copy_(value)
        _load_buffers(made, point.buffers)
        return made.eval()

    # -- inside -------------------------------------------------------------------------------------------------

    def _build(self, seed: int) -> nn.Module:
        if isinstance(self._make, nn.Module):
            return copy.deepcopy(self._make)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            now = torch.get_default_dtype()
            torch.set_default_dtype(self._usual)
            try:
                with refuse_gpu():
                    made = self._make()
            finally:
                torch.set_default_dtype(now)
        if not isinstance(made, nn.Module):
            raise ConfigError(f"the model must be an nn.Module or a function that makes one, got {type(made).__name__}")
        return made

    def _module(self, point: Point) -> nn.Module:
        """This thread's module, its parameters now views of the point."""
        module: nn.Module | None = getattr(self._threads, "module", None)
        if module is None:
            module = copy.deepcopy(self._prototype).train()
            self._threads.module, self._threads.params = module, list(_trainable(module))
        for p, view in zip(self._threads.params, self.layout.views(point.x), strict=True):
            p.data = view
        _load_buffers(module, point.buffers)
        return module

    def _gradient(self, point: Point, batch: Indices) -> Gradient:
        model = self._module(point)
        if not model.training:
            model.train()  # a walk over all modules: only after an evaluation
        inputs, target = self._train.batch(batch)
        output = call(model, inputs)
        self._check(output, target)
        loss = one_number(self.loss(output, target))
        grads = torch.autograd.grad(loss, self._threads.params, allow_unused=True, materialize_grads=True)
        value = Layout.flatten(grads)
        buffers: Buffers = None
        if point.buffers is not None:
            buffers = {n: b.detach().clone() for n, b in model.named_buffers()}
        return Gradient(
            value, loss.item(), len(batch), correct(output, target), torch.linalg.vector_norm(value).item(), buffers
        )

    def _predictions(self, samples: Samples, point: Point, mapper: Mapper) -> Predictions:
        """What is predicted; asked twice in a row for the same (at the end of a run, say), it answers from memory."""
        latest = self._latest
        if latest is not None and latest[0] is samples and _same(latest[1], point):
            return latest[2]
        found = self._predict(samples, point, mapper)
        self._latest = (samples, point, found)
        return found

    def _predict(self, samples: Samples, point: Point, mapper: Mapper) -> Predictions:
        size = len(samples)
        chunks = [np.arange(i, min(i + _EVALUATED_AT_ONCE, size)) for i in range(0, size, _EVALUATED_AT_ONCE)]

        def score(point: Point, indices: Indices) -> tuple[float, Any, Any, int]:
            model = self._module(point).eval()
            with torch.no_grad():
                inputs, target = samples.batch(indices)
                output = call(model, inputs)
                self._check(output, target)
                loss = one_number(self.loss(output, target)).item() * len(indices)
                if not classified(output, target):
                    return loss, None, None, 0
                return loss, output.argmax(1).numpy(), target.numpy(), output.shape[1]

        ways = self._evaluating = self._evaluating or habits(lambda p: score(p, chunks[0]), point)

        def keyed_score(indices: Indices) -> tuple[float, Any, Any, int]:
            where, randomness = ways.prepare(point, int(indices[0]))
            with randomness:
                return score(where, indices)

        losses, predicted, truth, outputs = zip(*mapper(keyed_score, chunks), strict=True)
        loss = sum(losses) / size
        if any(p is None for p in predicted):
            return Predictions(loss)
        return Predictions(loss, np.concatenate(predicted), np.concatenate(truth), outputs[0])

    def _check(self, output: Any, target: Any) -> None:
        """Once the number of outputs is known: do the labels fit?"""
        if self._fits or not classified(output, target):
            return
        sets = {"train set": self._train, "validation set": self._validation, "test set": self._test}
        known = {which: samples.labels for which, samples in sets.items() if samples is not None}
        refuse_out_of_range({**known, "batch": target.numpy()}, output.shape[1], self.name)
        self._fits = all(labels is not None for labels in known.values())  # else each batch brings labels not yet seen


def _trainable(module: nn.Module) -> Iterable[nn.Parameter]:
    return (p for p in module.parameters() if p.requires_grad)


def _load_buffers(module: nn.Module, buffers: Buffers) -> None:
    if buffers is None:
        return
    with torch.no_grad():
        for name, b in module.named_buffers():
            b.copy_(buffers[name])


def _same(a: Point, b: Point) -> bool:
    return torch.equal(a.x, b.x) and all(torch.equal(v, (b.buffers or {})[n]) for n, v in (a.buffers or {}).items())
