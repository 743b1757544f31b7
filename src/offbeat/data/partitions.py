"""Ways to split a training set among workers, each a function of the seed.

| name | what worker i gets |
|---|---|
| `shared` | everything, in an order of its own |
| `interleaved` | every W-th mini-batch of one common order |
| `split` | a random equal share |
| `split-labels` | labels of its own: consecutive ones, or (`split-labels(shuffled)`) drawn by the seed |
| `dirichlet(alpha)` | of each label a share drawn from Dirichlet(alpha, ..., alpha) |
| `size-skew(s)` | a random share proportional to (i + 1)^-s |

Every split is an exact cover: each sample belongs to one worker.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from typing import Any

import numpy as np

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.feed import Indices
from offbeat.core.seeds import generator

_DRAWS = 200  # of a Dirichlet split, until everybody has enough


@dataclass(frozen=True)
class Stock:
    """What is to be divided: so many samples among so many workers, each with at least `least` of them."""

    size: int
    workers: int
    seed: int
    least: int = 1
    labels: Indices | None = None

    def __post_init__(self) -> None:
        if self.workers > self.size:
            raise ConfigError(f"{self.size:,} training samples cannot be split among {self.workers} workers")

    def known_labels(self, partition: str) -> Indices:
        if self.labels is None:
            raise ConfigError(
                f"partition {partition!r} needs labels, and this task's training set shows none "
                "(pairs of tensors do, and datasets with an attribute 'targets' or a column 'label')"
            )
        return self.labels


def split(stock: Stock) -> list[Indices]:
    """Split dataset: a random equal share each; sizes differ by one at the most (lamour2023)."""
    return [np.sort(part) for part in np.array_split(_shuffled(stock), stock.workers)]


def split_labels(stock: Stock, order: str = "in-order") -> list[Indices]:
    """Split labels: every label belongs to one worker; numbers of labels differ by one at the most (lamour2023)."""
    labels = stock.known_labels("split-labels")
    present = np.unique(labels)
    if stock.workers > len(present):
        raise ConfigError(
            f"split-labels gives each worker labels of its own, but there are {stock.workers} workers and only "
            f"{len(present)} labels: use fewer workers, or dirichlet(0.1)"
        )
    if order == "shuffled":
        present = generator(stock.seed, "partition", 0).permutation(present)
    owned = np.array_split(present, stock.workers)
    return [np.flatnonzero(np.isin(labels, mine)) for mine in owned]


def dirichlet(stock: Stock, alpha: float) -> list[Indices]:
    """Of each label, worker i gets the share p_i, where p ~ Dirichlet(alpha, ..., alpha) (Yurochkin et al. 2019).

    As is usual (Li et al. 2022), the split is drawn again until every worker can fill a mini-batch.
    """
    labels = stock.known_labels("dirichlet")
    members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    for draw in range(_DRAWS):
        rng = generator(stock.seed, "partition", 0, draw)
        parts: list[list[Indices]] = [[] for _ in range(stock.workers)]
        for samples in members:
            p = rng.dirichlet([alpha] * stock.workers)
            cuts = np.rint(np.cumsum(p)[:-1] * len(samples)).astype(np.int64)
            for part, share in zip(parts, np.split(rng.permutation(samples), cuts), strict=True):
                part.append(share)
        shards = [np.sort(np.concatenate(part)) for part in parts]
        if min(len(s) for s in shards) >= stock.least:
            return shards
    raise ConfigError(
        f"dirichlet({alpha:g}) left some worker with fewer than {stock.least} of {stock.size:,} samples in each of "
        f"{_DRAWS} draws: use a larger alpha, fewer workers or a smaller batch"
    )


def size_skew(stock: Stock, s: float) -> list[Indices]:
    """Worker i's share is proportional to (i + 1)^-s, beside one sample for everybody: s = 0 is equal, s = 1 Zipf."""
    share = np.arange(1, stock.workers + 1, dtype=np.float64) ** -s
    exact = share / share.sum() * (stock.size - stock.workers)
    sizes = 1 + np.floor(exact).astype(np.int64)
    left = stock.size - sizes.sum()
    sizes[np.argsort(np.floor(exact) - exact, kind="stable")[:left]] += 1  # largest remainders
    return [np.sort(part) for part in np.split(_shuffled(stock), np.cumsum(sizes)[:-1])]


def _shuffled(stock: Stock) -> Indices:
    return generator(stock.seed, "partition", 0).permutation(stock.size)


# How to read what stands in brackets after a name.


def _nothing(name: str, text: str | None) -> dict[str, Any]:
    if text is not None:
        raise ConfigError(f"partition {name!r} takes no argument, got {text!r}")
    return {}


def _order(name: str, text: str | None) -> dict[str, Any]:
    if text not in (None, "in-order", "shuffled"):
        raise ConfigError(f"partition {name} takes in-order or shuffled, got {text!r}")
    return {"order": text or "in-order"}


def _alpha(name: str, text: str | None) -> dict[str, Any]:
    return {"alpha": _number(name, "alpha", text, "above 0", lambda value: value > 0)}


def _exponent(name: str, text: str | None) -> dict[str, Any]:
    return {"s": _number(name, "s", text, "from 0", lambda value: value >= 0)}


def _number(name: str, letter: str, text: str | None, allowed: str, fits: Callable[[float], bool]) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = nan
    if not (isfinite(value) and fits(value)):
        raise ConfigError(f"partition {name}({letter}): {letter} must be a finite number {allowed}, got {text!r}")
    return value


_DIVIDED: Mapping[str, tuple[Callable[..., list[Indices]], Callable[[str, str | None], dict[str, Any]]]] = {
    "split": (split, _nothing),
    "split-labels": (split_labels, _order),
    "dirichlet": (dirichlet, _alpha),
    "size-skew": (size_skew, _exponent),
}
_WHOLE = ("shared", "interleaved")
PARTITIONS = (*_WHOLE, "split", "split-labels", "dirichlet(alpha)", "size-skew(s)")


@dataclass(frozen=True)
class Partition:
    """A partition by name, with its argument."""

    name: str
    divide: Callable[[Stock], list[Indices]] | None
    """None: everybody draws from everything."""


def parse(text: str) -> Partition:
    """`dirichlet(0.5)` and the like; an unknown name lists the known ones."""
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\(\s*([^()]*?)\s*\))?\s*", text)
    name, argument = (found[1], found[2]) if found else (text, None)
    if name in _WHOLE:
        _nothing(name, argument)
        return Partition(name, None)
    if name not in _DIVIDED:
        raise unknown("partition", text, PARTITIONS)
    divide, read = _DIVIDED[name]
    return Partition(name, partial(divide, **read(name, argument)))
