"""Image classification by name: a dataset, and any model that takes its pictures."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from offbeat.core.errors import ConfigError
from offbeat.data import holdout
from offbeat.data.arrays import Scaling, load
from offbeat.data.datasets import dataset
from offbeat.tasks.models import build, model
from offbeat.tasks.module import ModuleTask


def digits(
    model: str = "lenet5",
    size: int = 32,
    scaling: Scaling | None = None,
    samples: int | None = None,
    test_samples: int | None = None,
    **options: Any,
) -> ModuleTask:
    """The digits that scikit-learn carries, upscaled from 8x8 to 32x32."""
    return image_task("digits", model, size, scaling, (samples, test_samples), options)


def mnist(
    model: str = "lenet5",
    size: int = 28,
    scaling: Scaling | None = None,
    samples: int | None = None,
    test_samples: int | None = None,
    **options: Any,
) -> ModuleTask:
    """MNIST; jain2018 has `size = 32, scaling = "unit"`, wongpanich2020 `model = "lstm"`."""
    return image_task("mnist", model, size, scaling, (samples, test_samples), options)


def fashion_mnist(
    model: str = "lenet5",
    size: int = 28,
    scaling: Scaling | None = None,
    samples: int | None = None,
    test_samples: int | None = None,
    **options: Any,
) -> ModuleTask:
    """Fashion-MNIST (lamour2023)."""
    return image_task("fashion-mnist", model, size, scaling, (samples, test_samples), options)


def cifar10(
    model: str = "cifar10-full",
    size: int = 32,
    scaling: Scaling | None = None,
    samples: int | None = None,
    test_samples: int | None = None,
    **options: Any,
) -> ModuleTask:
    """CIFAR-10 (wongpanich2020), without augmentation."""
    return image_task("cifar10", model, size, scaling, (samples, test_samples), options)


def image_task(
    name: str,
    model_name: str,
    size: int,
    scaling: Scaling | None,
    samples: tuple[int | None, int | None],
    options: dict[str, Any],
) -> ModuleTask:
    """`samples` keeps so many for training and for the test, each label in proportion; `options` are the model's own.

    Pixels are standardised, but for cifar10-full, which has Caffe's scaling.
    """
    row = model(model_name)  # a wrong name is told before a long load
    scaling = scaling or ("caffe" if model_name == "cifar10-full" else "standard")
    if not isinstance(size, int) or not 1 <= size <= 1024:
        raise ConfigError(f"task.size must be a number of pixels from 1 to 1024, got {size!r}")
    data = load(name, resize=size, scaling=scaling)
    shape = tuple(data.train_x.shape[1:])
    build(model_name, shape, data.classes, options)  # so is a wrong option or size
    return ModuleTask(
        partial(build, model_name, shape, data.classes, options),
        F.cross_entropy,
        _some(data.train_x, data.train_y, samples[0], "task.samples"),
        _some(data.test_x, data.test_y, samples[1], "task.test_samples"),
        name=name if model_name == "lenet5" else f"{name}/{model_name}",
        defaults=dict(row.defaults),
        fingerprint=f"{name}/{model_name}/{shape}/{scaling}/{samples}/{sorted(options.items())}",
        about={"dataset": name, "model": model_name, "input": list(shape), "scaling": scaling, **options},
        classes=dataset(name).names or None,
    )


def _some(x: Tensor, y: Tensor, samples: int | None, key: str) -> tuple[Tensor, Tensor]:
    size = len(y)
    if samples is None or samples == size:
        return x, y
    if not isinstance(samples, int) or not 1 <= samples <= size:
        raise ConfigError(f"{key} must be from 1 to the {size:,} samples that there are, got {samples!r}")
    kept = torch.from_numpy(holdout.share(size, samples / size, 0, y.numpy()))
    return x[kept], y[kept]
