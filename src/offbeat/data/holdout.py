"""Samples kept out of training: a share of them, or one of k folds; labels in proportion, chosen by the seed."""

import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.feed import Indices
from offbeat.core.seeds import generator


def folds(size: int, k: int, seed: int, labels: Indices | None = None) -> list[Indices]:
    """k disjoint folds that cover everything; sizes differ by one at the most, and so do the counts of each label.

    The samples are shuffled, put in order of their label, and dealt like cards.
    """
    if not 2 <= k <= size:
        raise ConfigError(f"the number of folds must be from 2 to the {size:,} training samples, got {k}")
    order = _dealt(size, seed, labels)
    return [np.sort(order[i::k]) for i in range(k)]


def share(size: int, part: float, seed: int, labels: Indices | None = None) -> Indices:
    """About part * size samples, of each label the same part (largest remainders first)."""
    count = round(part * size)
    if not 0 < count < size:
        raise ConfigError(f"a validation share of {part:g} of {size:,} training samples leaves one side empty")
    order = _dealt(size, seed, labels)
    # Every 1/part-th card: position j is taken where the integer part of (j + 1) count / size goes up.
    j = np.arange(size)
    return np.sort(order[(j + 1) * count // size > j * count // size])


def _dealt(size: int, seed: int, labels: Indices | None) -> Indices:
    order = generator(seed, "validation", 0).permutation(size)
    return order if labels is None else order[np.argsort(labels[order], kind="stable")]
