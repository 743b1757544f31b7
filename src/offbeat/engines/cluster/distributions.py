"""How long things take: distributions of seconds, written `normal(10ms, 2ms)`, sampled in blocks.

Every sample is finite and at least 0. Heavy tails are cut at `FOREVER`, so that sums of times stay finite too.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import format_duration, parse_duration, shown

FOREVER = 1e100  # seconds
MOST_VALUES = 100_000  # of an empirical distribution
MAX_SPREAD = 1e6  # std / mean; beyond it the samples are zeros and a few giants, and their formulas lose all digits

Floats = NDArray[np.float64]


def _seconds(value: object, what: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= FOREVER:
        raise ConfigError(f"{what} must be seconds from 0 to {FOREVER:g}, got {shown(value)}")
    return float(value) + 0.0  # + 0.0 makes a negative zero positive


def _cut(times: Floats) -> Floats:
    """Between 0 and FOREVER, in place: np.clip takes longer than the numbers themselves."""
    np.maximum(times, 0.0, out=times)
    return np.minimum(times, FOREVER, out=times)


def _shape(value: object, what: str = "pareto shape") -> float:
    try:
        shape = math.nan if isinstance(value, bool) or not isinstance(value, int | float | str) else float(value)
    except (ValueError, OverflowError):
        shape = math.nan
    if not 0 < shape < math.inf:
        raise ConfigError(f"{what} must be a finite number above 0, such as 2.5, got {shown(value)}")
    return shape


def _set_mean_and_std(distribution: "Gamma | Lognormal", name: str) -> None:
    mean = _seconds(distribution.mean, f"{name} mean")
    std = _seconds(distribution.std, f"{name} std")
    if std > MAX_SPREAD * mean:
        raise ConfigError(f"{name} std must be at most {MAX_SPREAD:g} times its mean {mean!r}, got {std!r}")
    object.__setattr__(distribution, "mean", mean)
    object.__setattr__(distribution, "std", std)


@dataclass(frozen=True, slots=True)
class Constant:
    """Always `value`."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _seconds(self.value, "constant value"))

    @property
    def mean(self) -> float:
        return self.value

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        return np.full(n, self.value, dtype=np.float64)

    def __str__(self) -> str:
        return format_duration(self.value)


@dataclass(frozen=True, slots=True, init=False)
class Normal:
    """max(0, N(mu, std^2)): `Normal(mean, std)` gives the moments before clipping, `.mean` is the one after it.

    E[max(0, N)] = mu Phi(mu / std) + std phi(mu / std).
    """

    mu: float
    std: float

    # Written out because `mean` is the argument everyone expects, but the property of that name is another number.
    def __init__(self, mean: float, std: float) -> None:
        object.__setattr__(self, "mu", _seconds(mean, "normal mean"))
        object.__setattr__(self, "std", _seconds(std, "normal std"))

    @property
    def mean(self) -> float:
        if self.std == 0:
            return self.mu
        z = self.mu / self.std
        Phi = 0.5 * math.erfc(-z / math.sqrt(2))
        phi = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return self.mu * Phi + self.std * phi

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        return _cut(rng.normal(self.mu, self.std, n))

    def __str__(self) -> str:
        return f"normal({format_duration(self.mu)}, {format_duration(self.std)})"


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma with shape (mean / std)^2 and scale std^2 / mean."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        _set_mean_and_std(self, "gamma")

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        if self.std == 0:
            return np.full(n, self.mean, dtype=np.float64)
        ratio = self.mean / self.std
        # Beyond 1e30 floats cannot show the spread, and an infinite shape would keep numpy's rejection loop forever.
        shape = min(ratio * ratio, 1e30)
        return _cut(rng.gamma(shape, self.mean / shape, n))

    def __str__(self) -> str:
        return f"gamma({format_duration(self.mean)}, {format_duration(self.std)})"


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp(N(m, s^2)) with s^2 = log(1 + (std / mean)^2), m = log(mean) - s^2 / 2: mean and std of the variable."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        _set_mean_and_std(self, "lognormal")

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        if self.std == 0:
            return np.full(n, self.mean, dtype=np.float64)
        spread = self.std / self.mean
        s2 = math.log1p(spread * spread)
        return _cut(rng.lognormal(math.log(self.mean) - s2 / 2, math.sqrt(s2), n))

    def __str__(self) -> str:
        return f"lognormal({format_duration(self.mean)}, {format_duration(self.std)})"


@dataclass(frozen=True, slots=True)
class Exponential:
    """P(X > x) = exp(-x / mean)."""

    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _seconds(self.mean, "exponential mean"))

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        return _cut(rng.exponential(self.mean, n))

    def __str__(self) -> str:
        return f"exponential({format_duration(self.mean)})"


@dataclass(frozen=True, slots=True)
class Pareto:
    """P(X > x) = (scale / x)^shape for x >= scale; the mean is infinite for shape <= 1."""

    scale: float
    shape: float

    def __post_init__(self) -> None:
        scale = _seconds(self.scale, "pareto scale")
        if scale == 0:
            raise ConfigError(f"pareto scale must be above 0, got {shown(self.scale)}")
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "shape", _shape(self.shape))

    @property
    def mean(self) -> float:
        return self.scale * self.shape / (self.shape - 1) if self.shape > 1 else math.inf

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        with np.errstate(over="ignore"):  # what overflows is cut below
            return np.clip(self.scale * (1.0 + rng.pareto(self.shape, n)), self.scale, FOREVER)

    def __str__(self) -> str:
        return f"pareto({format_duration(self.scale)}, {self.shape!r})"


@dataclass(frozen=True, slots=True)
class Empirical:
    """One of `values`, each equally likely."""

    values: tuple[float, ...]
    _array: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = tuple(_seconds(value, "empirical value") for value in self.values)
        if not values:
            raise ConfigError("empirical needs at least one value, got (), example: 'empirical(100ms, 200ms)'")
        object.__setattr__(self, "values", values)
        # Kept, because a recorded trace has many values and blocks of samples are small.
        object.__setattr__(self, "_array", np.array(values, dtype=np.float64))

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        return self._array[rng.integers(len(self.values), size=n)]

    def __str__(self) -> str:
        return f"empirical({', '.join(map(format_duration, self.values))})"


Distribution = Constant | Normal | Gamma | Lognormal | Exponential | Pareto | Empirical

ZERO = Constant(0.0)

EXAMPLES: Mapping[str, str] = {
    "constant": "constant(10ms)",
    "normal": "normal(10ms, 2ms)",
    "gamma": "gamma(10ms, 2ms)",
    "lognormal": "lognormal(10ms, 2ms)",
    "exponential": "exponential(10ms)",
    "pareto": "pareto(10ms, 2.5)",
    "empirical": "empirical(0.1, 0.2, 0.15)",
}

SHORT: Mapping[str, str] = {"exp": "exponential"}

_CALL = re.compile(r"([A-Za-z]\w*)\s*(?:\((.*)\))?", re.DOTALL)


def _share_or_time(text: str, mean: float, what: str) -> float:
    """A time or, in per cent, a share of the mean."""
    if not text.strip().endswith("%"):
        return parse_duration(text, what)
    return mean * parse_duration(text.strip()[:-1], what) / 100


def parse_distribution(value: object, what: str = "distribution") -> Distribution:
    """A distribution from "10ms", 0.01 or "normal(10ms, 2ms)"; a distribution is returned as it is."""
    if isinstance(value, Distribution):
        return value
    match = _CALL.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        allowed = f"a time or a distribution, such as '10ms' or 'normal(10ms, 2ms)', got {shown(value)}"
        try:
            return Constant(parse_duration(value, what))
        except ConfigError:
            raise ConfigError(f"{what} must be {allowed}") from None
    name, inside = match.groups()
    name = SHORT.get(name, name)
    if name not in EXAMPLES:
        raise unknown(f"distribution for {what}" if what != "distribution" else what, name, EXAMPLES)
    values = inside.split(",") if inside and inside.strip() else []
    if len(values) > MOST_VALUES:
        raise ConfigError(f"{what}: {name} takes at most {MOST_VALUES:,} values, got {len(values):,}")
    match name, values:
        case "constant", [time]:
            return Constant(parse_duration(time, f"{what}: constant value"))
        case "normal" | "gamma" | "lognormal", [first, second]:
            mean = parse_duration(first, f"{what}: {name} mean")
            std = _share_or_time(second, mean, f"{what}: {name} std")
            kinds: Mapping[str, type[Normal | Gamma | Lognormal]]
            kinds = {"normal": Normal, "gamma": Gamma, "lognormal": Lognormal}
            return kinds[name](mean, std)
        case "exponential", [time]:
            return Exponential(parse_duration(time, f"{what}: exponential mean"))
        case "pareto", [first, second]:
            return Pareto(parse_duration(first, f"{what}: pareto scale"), _shape(second, f"{what}: pareto shape"))
        case "empirical", [_, *_]:
            return Empirical(tuple(parse_duration(time, f"{what}: empirical value") for time in values))
    raise ConfigError(f"{what}: {name} is written like {EXAMPLES[name]!r}, got {shown(value)}")
