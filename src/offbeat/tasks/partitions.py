"""Ways to split a training set among workers, each a function of the seed."""

from collections.abc import Callable, Mapping

import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.feed import Indices
from offbeat.core.seeds import generator

Partition = Callable[[int, int, int], list[Indices] | None]
"""(size, workers, seed) -> one array of sample numbers a worker; None: everybody draws from everything."""


def shared(size: int, workers: int, seed: int) -> None:
    """No partition: each worker shuffles the whole training set in an order of its own."""


def split(size: int, workers: int, seed: int) -> list[Indices]:
    """Split dataset: a random equal share each; sizes differ by one at the most."""
    if workers > size:
        raise ConfigError(f"{size} training samples cannot be split among {workers} workers")
    return [np.sort(part) for part in np.array_split(generator(seed, "partition", 0).permutation(size), workers)]


PARTITIONS: Mapping[str, Partition] = {"shared": shared, "interleaved": shared, "split": split}
