"""Training samples behind one interface: tensors (a batch costs an index), or any map-style dataset."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.core.errors import ConfigError, DataError
from offbeat.core.feed import Indices

Collate = Callable[[list[Any]], Any]
"""Puts samples together into a batch: (inputs, target), or a dict with the target in it."""

_CHEAP_BYTES = 1 << 26
"""Read in a tenth of a second or so."""
_TARGETS = ("label", "labels", "target", "y")
_EITHER = f"(input, target) or a dict with one of {', '.join(_TARGETS)}"


@runtime_checkable
class Samples(Protocol):
    """What a task needs of a dataset."""

    @property
    def labels(self) -> Indices | None:
        """The class of every sample, where there are classes and they can be had without reading every sample."""

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> tuple[Any, Any]:
        """(inputs, target) of these samples."""


class TensorSamples:
    """Inputs and targets as tensors in memory (or mapped into it); several inputs are given as a tuple."""

    def __init__(self, *tensors: Tensor) -> None:
        *inputs, targets = tensors
        for given in inputs:
            if len(given) != len(targets):
                raise DataError(f"{len(given)} inputs but {len(targets)} targets")
        self._inputs, self._targets = inputs, targets
        self.labels = _classes(targets)

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 of all numbers; None where there are too many to look at them each time."""
        tensors = [*self._inputs, self._targets]
        if sum(t.nbytes for t in tensors) > _CHEAP_BYTES:
            return None
        found = hashlib.sha256()
        for t in tensors:
            found.update(f"{t.dtype} {tuple(t.shape)}".encode())
            found.update(t.detach().contiguous().view(torch.uint8).numpy().tobytes() if t.numel() else b"")
        return found.hexdigest()

    def __len__(self) -> int:
        return len(self._targets)

    def batch(self, indices: Indices) -> tuple[Any, Tensor]:
        at = torch.from_numpy(indices)
        inputs = tuple(t.index_select(0, at) for t in self._inputs)
        return (inputs[0] if len(inputs) == 1 else inputs), self._targets.index_select(0, at)


class MapSamples:
    """A map-style dataset: `len(d)` and `d[i]`, which is (input, target) or a dict; torchvision's and HuggingFace's.

    Its labels are read from `d.targets` (torchvision) or from the column `d["label"]` (HuggingFace) if it has them.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.labels = self._known_labels()

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, indices: Indices) -> tuple[Any, Any]:
        from torch.utils.data import default_collate

        try:
            items = default_collate([_plain(self._dataset[int(i)]) for i in indices])
        except (TypeError, ValueError, RuntimeError) as e:
            raise DataError(f"samples cannot be put together into a batch: {str(e).splitlines()[0]}") from None
        if (pair := _pair(items)) is not None:
            return pair
        raise DataError(f"a sample must be {_EITHER}, got {_shape(self._dataset[0])}")

    def _known_labels(self) -> Indices | None:
        found = getattr(self._dataset, "targets", None)
        if found is None:
            columns = getattr(self._dataset, "column_names", None) or ()
            name = next((k for k in _TARGETS if k in columns), None)
            found = None if name is None else self._dataset[name]
        if found is None or len(found) != len(self._dataset):
            return None
        try:
            return _classes(torch.as_tensor(found))
        except (TypeError, ValueError, RuntimeError):
            return None


class CollatedSamples:
    """A map-style dataset whose batches are put together by a function of the user's, as a DataLoader takes it."""

    def __init__(self, dataset: Any, collate: Collate, labels: Indices | None) -> None:
        self._dataset, self._collate, self.labels = dataset, collate, labels

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, indices: Indices) -> tuple[Any, Any]:
        items = self._collate([self._dataset[int(i)] for i in indices])
        if (pair := _pair(items)) is not None:
            return pair
        raise DataError(f"collate must give {_EITHER.replace('input,', 'inputs,')}, got {_shape(items)}")


class Subset:
    """Some of the samples, renumbered from 0."""

    def __init__(self, whole: Samples, at: Indices) -> None:
        self._whole, self._at = whole, at
        self.labels = None if whole.labels is None else whole.labels[at]

    @property
    def digest(self) -> str | None:
        """That of the whole; which of them these are is said elsewhere."""
        found: str | None = getattr(self._whole, "digest", None)
        return found

    def __len__(self) -> int:
        return len(self._at)

    def batch(self, indices: Indices) -> tuple[Any, Any]:
        return self._whole.batch(self._at[indices])


def as_samples(data: Any, what: str, floats: torch.dtype = torch.float32, collate: Collate | None = None) -> Samples:
    """The samples of tensors or arrays (the last is the target), a TensorDataset, a Subset, any map-style dataset.

    Args:
        data: the dataset.
        what: what to call it in an error.
        floats: what numbers of an array become that numpy has as float64, which is what it has if nobody says so.
        collate: puts a list of samples together into a batch, (inputs, target) or a dict.
    """
    if collate is not None:
        if isinstance(data, list | tuple) and _are_columns(data):
            data = torch.utils.data.TensorDataset(*(_tensor(c, what, floats) for c in data))
        plain = as_samples(data, what, floats)
        return CollatedSamples(data, collate, plain.labels)
    if isinstance(data, torch.utils.data.TensorDataset):
        data = data.tensors
    if type(data) is torch.utils.data.Subset and len(data):  # as random_split gives
        return Subset(as_samples(data.dataset, what, floats), np.asarray(data.indices, dtype=np.int64))
    if isinstance(data, list | tuple) and _are_columns(data):
        if len(data) == 1:
            raise DataError(f"{what} has inputs but no target: give (inputs, target)")
        samples: Samples = TensorSamples(*(_tensor(column, what, floats) for column in data))
    elif isinstance(data, Samples):
        samples = data
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        samples = MapSamples(data)
    else:
        hint = ": give its .dataset, batches are made here" if hasattr(data, "dataset") else ""
        raise ConfigError(
            f"{what} must be a pair of tensors or a map-style dataset (len and []), got {type(data).__name__}{hint}"
        )
    if len(samples) == 0:
        raise DataError(f"the {what} set is empty")
    return samples


def _are_columns(data: Sequence[Any]) -> bool:
    """Whether these are the columns of a dataset and not its samples, each of which has an input and a target."""
    return len(data) > 0 and all(isinstance(c, Tensor | np.ndarray) for c in data)


def _tensor(column: Tensor | NDArray[Any], what: str, floats: torch.dtype) -> Tensor:
    if isinstance(column, Tensor):
        return column
    try:
        made = torch.from_numpy(np.ascontiguousarray(column))
    except TypeError:
        raise DataError(f"{what} must hold numbers, got an array of {column.dtype}") from None
    return made.to(floats) if made.dtype == torch.float64 else made


def _pair(items: Any) -> tuple[Any, Any] | None:
    """(inputs, target) of a batch; of a dict, the target is taken out by its name. None where it is neither."""
    if isinstance(items, list | tuple) and len(items) == 2:
        return items[0], items[1]
    if isinstance(items, Mapping) and len(items) >= 2:
        target = next((k for k in _TARGETS if k in items), None)
        if target is not None:
            rest = {k: v for k, v in items.items() if k != target}
            return (next(iter(rest.values())) if len(rest) == 1 else rest), items[target]
    return None


def _classes(targets: Tensor) -> Indices | None:
    """Whole numbers, one a sample, are classes."""
    if targets.dim() != 1 or targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        return None
    return targets.to(torch.int64).numpy()


def _plain(item: Any) -> Any:
    """A PIL picture as numbers in [0, 1] (C, H, W), as torchvision's ToTensor makes it; lists in a row of
    HuggingFace's as tensors; the rest as it is."""
    if isinstance(item, Mapping):
        return {k: torch.as_tensor(v) if isinstance(v, list) else _plain(v) for k, v in item.items()}
    if isinstance(item, list | tuple) and len(item) == 2:
        return tuple(_plain(v) for v in item)
    if hasattr(item, "getbands") and hasattr(item, "convert"):
        pixels = np.asarray(item if item.mode in ("L", "RGB") else item.convert("RGB"))
        planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        return torch.from_numpy(planes.copy()).to(torch.float32).div_(255)
    return item


def _shape(item: Any) -> str:
    if isinstance(item, Mapping):
        return f"a dict with {', '.join(map(str, item))}"
    return f"{len(item)} values" if isinstance(item, list | tuple) else type(item).__name__
