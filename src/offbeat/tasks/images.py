"""Image classification tasks by name."""

from functools import partial

from torch.nn import functional as F

from offbeat.tasks.arrays import load
from offbeat.tasks.models import lenet5
from offbeat.tasks.module import ModuleTask


def _lenet(dataset: str, size: int) -> ModuleTask:
    data = load(dataset, resize=size)
    return ModuleTask(
        partial(lenet5, size=size),
        F.cross_entropy,
        (data.train_x, data.train_y),
        (data.test_x, data.test_y),
        name=dataset,
        fingerprint=f"{dataset}/lenet5/{size}",
    )


def digits() -> ModuleTask:
    """LeNet-5 on the digits that scikit-learn carries, upscaled from 8x8 to 32x32."""
    return _lenet("digits", 32)


def mnist(size: int = 28) -> ModuleTask:
    """LeNet-5 on MNIST; `size` 32 resizes as jain2018 did."""
    return _lenet("mnist", size)


def fashion_mnist(size: int = 28) -> ModuleTask:
    """LeNet-5 on Fashion-MNIST (lamour2023)."""
    return _lenet("fashion-mnist", size)
