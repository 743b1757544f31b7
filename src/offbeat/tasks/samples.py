"""Training samples behind one interface: two tensors (a batch costs an index), or any map-style dataset."""

from typing import Any, Protocol

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError, DataError
from offbeat.core.feed import Indices


class Samples(Protocol):
    """What a task needs of a dataset."""

    labels: Tensor | None

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> tuple[Any, Any]:
        """(inputs, target) of these samples."""


class TensorSamples:
    """Inputs and targets as two tensors in memory."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) != len(targets):
            raise DataError(f"{len(inputs)} inputs but {len(targets)} targets")
        self._inputs, self._targets = inputs, targets
        self.labels = targets if targets.dtype == torch.int64 and targets.dim() == 1 else None

    def __len__(self) -> int:
        return len(self._inputs)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        at = torch.from_numpy(indices)
        return self._inputs.index_select(0, at), self._targets.index_select(0, at)


class MapSamples:
    """A map-style dataset: `len(d)` and `d[i] -> (input, target)`, torchvision's and HuggingFace's among them."""

    labels: Tensor | None = None

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, indices: Indices) -> tuple[Any, Any]:
        from torch.utils.data import default_collate

        items = default_collate([self._dataset[int(i)] for i in indices])
        if isinstance(items, list | tuple) and len(items) == 2:
            return items[0], items[1]
        if isinstance(items, dict) and len(items) >= 2:
            target = next((k for k in ("label", "labels", "target", "y") if k in items), None)
            if target is not None:
                rest = [v for k, v in items.items() if k != target]
                return (rest[0] if len(rest) == 1 else {k: v for k, v in items.items() if k != target}), items[target]
        raise DataError(
            "a sample must be (input, target) or a dict with a 'label', 'labels', 'target' or 'y', "
            f"got {type(self._dataset[0]).__name__}"
        )


def as_samples(data: Any, what: str) -> Samples:
    """The samples of a pair of tensors, a TensorDataset, or any map-style dataset."""
    if isinstance(data, torch.utils.data.TensorDataset):
        data = data.tensors
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(t, Tensor) for t in data):
        samples: Samples = TensorSamples(*data)
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        samples = MapSamples(data)
    else:
        raise ConfigError(
            f"{what} must be a pair of tensors or a map-style dataset (len and []), got {type(data).__name__}"
        )
    if len(samples) == 0:
        raise DataError(f"the {what} set is empty")
    return samples
