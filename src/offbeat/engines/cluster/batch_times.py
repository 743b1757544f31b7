"""How long a batch takes: a distribution, a time that grows with its samples, or recorded times played again.

The batch that counts is the worker's k-th: its size may grow on the way, and a recording has a time for it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.units import shown
from offbeat.engines.cluster.distributions import (
    ZERO,
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Floats,
    Normal,
    Pareto,
    parse_distribution,
)
from offbeat.engines.cluster.recorded import RecordedTimes, parse_recorded

Sizes = Callable[[int, int], NDArray[np.int64] | int]
"""Samples of a worker's batches: from the first, so many; a number where all are equal."""

_SAMPLE = "/sample"
_ONE = Constant(1.0)
_ALLOWED = "a time, a distribution, a sum such as '2ms + 0.12ms/sample', or 'trace(times.csv)'"


@dataclass(frozen=True)
class PerSample:
    """`fixed` + n `each` for a batch of n samples, times `noise`: "(2ms + 0.12ms/sample) * lognormal(1, 0.1)".

    Each batch draws once from every part that is a distribution.
    """

    fixed: Distribution = ZERO
    each: Distribution = ZERO
    noise: Distribution = _ONE

    def mean_of(self, batch: float) -> float:
        return (self.fixed.mean + batch * self.each.mean) * self.noise.mean

    def sample_batches(self, rng: np.random.Generator, n: int, sizes: NDArray[np.int64] | int) -> Floats:
        times: Floats = self.fixed.sample(rng, n) + self.each.sample(rng, n) * sizes
        return times if self.noise == _ONE else times * self.noise.sample(rng, n)

    def __str__(self) -> str:
        parts = [str(self.fixed)] if self.fixed != ZERO or self.each == ZERO else []
        parts += [f"{self.each}{_SAMPLE}"] if self.each != ZERO else []
        text = " + ".join(parts)
        return text if self.noise == _ONE else f"({text}) * {_bare(self.noise)}"


BatchTime = Distribution | PerSample | RecordedTimes


def mean_of(time: BatchTime, batch: float) -> float:
    """Expected seconds of a batch of so many samples."""
    return time.mean_of(batch) if isinstance(time, PerSample) else time.mean


def block_of(time: BatchTime, rng: np.random.Generator, part: tuple[int, int], sizes: Sizes, column: int) -> Floats:
    """Seconds of a worker's batches, from the first, so many."""
    first, n = part
    if isinstance(time, RecordedTimes):
        return time.play(column, first, n)
    return time.sample_batches(rng, n, sizes(first, n)) if isinstance(time, PerSample) else time.sample(rng, n)


def parse_batch_time(value: object, what: str = "compute") -> BatchTime:
    """What `parse_distribution` takes, sums with a term "/sample", factors of noise, and "trace(file.csv)"."""
    if isinstance(value, PerSample | RecordedTimes):
        return value
    if isinstance(value, str) and (found := parse_recorded(value, what)) is not None:
        return found
    if not isinstance(value, str) or not (_SAMPLE in value or "*" in value or _split(value, "+")[1:]):
        return parse_distribution(value, what)
    terms, *noise = _split(value, "*") if value.strip().startswith("(") else (value,)
    inside = terms.strip()
    if noise:
        if not (inside.startswith("(") and inside.endswith(")")) or len(noise) > 1:
            raise ConfigError(f"{what} must be {_ALLOWED}, got {shown(value)}")
        inside = inside[1:-1]
    made = _sum(inside, what, value)
    if noise:
        made = replace(made, noise=_factor(noise[0], what))
    return made if made.each != ZERO or made.noise != _ONE else made.fixed


def _sum(text: str, what: str, whole: str) -> PerSample:
    fixed: list[Distribution] = []
    each: list[Distribution] = []
    for term in _split(text, "+"):
        time, *factors = _split(term, "*")
        time = time.strip()
        per_sample = time.endswith(_SAMPLE)
        found = parse_distribution(time.removesuffix(_SAMPLE), what)
        for factor in factors:
            if not isinstance(found, Constant):
                raise ConfigError(f"{what}: only a plain time takes a factor of noise, got {shown(term.strip())}")
            found = _scaled(_factor(factor, what), found.value)
        (each if per_sample else fixed).append(found)
    if len(fixed) > 1 or len(each) > 1:
        raise ConfigError(f"{what} takes one time for each batch and one for each sample, got {shown(whole)}")
    return PerSample(*(fixed or [ZERO]), *(each or [ZERO]))


def _split(text: str, sign: str) -> list[str]:
    """At a sign outside parentheses that is no part of a number."""
    parts, depth, start = [], 0, 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == sign and depth == 0 and not re.search(r"[0-9.][eE]$", text[:k]):
            parts.append(text[start:k])
            start = k + 1
    return [*parts, text[start:]]


def _factor(text: str, what: str) -> Distribution:
    """A distribution of plain numbers around 1."""
    if re.search(r"[0-9.]\s*[A-Za-zµμ]", re.sub(r"[0-9.][eE][+-]?[0-9]", "0", text)):
        raise ConfigError(
            f"{what}: a factor of noise has no unit, such as 'lognormal(1, 0.1)', got {shown(text.strip())}"
        )
    found = parse_distribution(text.strip(), f"{what}: a factor of noise")
    if not found.mean > 0:
        raise ConfigError(f"{what}: a factor of noise must be above 0 on average, got {shown(text.strip())}")
    return found


def _numbers(d: Distribution) -> Iterator[float]:
    match d:
        case Constant():
            yield d.value
        case Normal():
            yield from (d.mu, d.std)
        case Exponential():
            yield d.mean
        case Pareto():
            yield from (d.scale, d.shape)
        case Empirical():
            yield from d.values
        case _:
            yield from (d.mean, d.std)


def _scaled(d: Distribution, by: float) -> Distribution:
    """All of these distributions are closed under it."""
    if isinstance(d, Pareto):
        return Pareto(d.scale * by, d.shape)
    if isinstance(d, Empirical):
        return Empirical(tuple(v * by for v in d.values))
    return type(d)(*(v * by for v in _numbers(d)))


def _bare(d: Distribution) -> str:
    """As plain numbers."""
    numbers = ", ".join(repr(v) for v in _numbers(d))
    return numbers if isinstance(d, Constant) else f"{type(d).__name__.lower()}({numbers})"
