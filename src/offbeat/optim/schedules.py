"""Learning-rate schedules: pure functions of the work clock, i.e. of samples processed by everybody.

Under asynchrony the number of updates says nothing about progress (ASGD makes W times as many an epoch as synchronous
SGD), so no schedule here ever sees it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import cos, inf, pi

from offbeat.core.errors import ConfigError, unknown

Factor = Callable[[float], float]
"""Samples processed, this update's included -> factor of the learning rate."""


def constant(samples: float) -> float:
    """eta = eta_0."""
    return 1.0


def polynomial(total: float, power: float = 1.0) -> Factor:
    """eta = eta_0 (1 - t / T)^p; p = 1 for cifar10-full, 0.5 for GoogLeNet in wongpanich2020."""
    return lambda t: max(0.0, 1.0 - t / total) ** power


def multistep(milestones: tuple[float, ...], gamma: float = 0.1) -> Factor:
    """eta = eta_0 gamma^(milestones passed)."""
    return lambda t: _power(gamma, sum(t > m for m in milestones))


def exponential(unit: float, gamma: float) -> Factor:
    """eta = eta_0 gamma^(t / unit): gamma an epoch where the unit is one epoch."""
    return lambda t: _power(gamma, t / unit)


def _power(base: float, exponent: float) -> float:
    """base^exponent; infinite where that is beyond all floats, and so the run diverges."""
    try:
        return float(base**exponent)
    except OverflowError:
        return inf


def cosine(total: float, floor: float = 0.0) -> Factor:
    """eta = eta_0 (floor + (1 - floor) (1 + cos(pi t / T)) / 2)."""
    return lambda t: floor + (1 - floor) * 0.5 * (1 + cos(pi * min(1.0, t / total)))


def warmed_up(after: Factor, samples: float) -> Factor:
    """Linear from 0 over the first samples, then `after` (Goyal et al. 2017). The schedule's own clock runs from 0."""
    return lambda t: min(1.0, t / samples) * after(t)


KINDS = ("constant", "polynomial", "multistep", "exponential", "cosine")


@dataclass(frozen=True)
class Schedule:
    """A schedule as values, all lengths in samples; callable."""

    kind: str = "constant"
    warmup: float = 0.0
    total: float | None = None
    power: float = 1.0
    milestones: tuple[float, ...] = ()
    gamma: float = 0.1
    unit: float | None = None
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("schedule.kind", self.kind, KINDS)
        if self.kind in ("polynomial", "cosine") and not self.total:
            raise ConfigError(f"schedule {self.kind!r} needs a length: give schedule.over, or a budget in epochs")
        if self.kind == "multistep" and not self.milestones:
            raise ConfigError("schedule 'multistep' needs schedule.milestones, such as ['30epochs', '60epochs']")

    def __call__(self, samples: float) -> float:
        return self._factor()(samples)

    def _factor(self) -> Factor:
        makers: Mapping[str, Callable[[], Factor]] = {
            "constant": lambda: constant,
            "polynomial": lambda: polynomial(self.total or 1.0, self.power),
            "multistep": lambda: multistep(self.milestones, self.gamma),
            "exponential": lambda: exponential(self.unit or 1.0, self.gamma),
            "cosine": lambda: cosine(self.total or 1.0, self.floor),
        }
        made = makers[self.kind]()
        return warmed_up(made, self.warmup) if self.warmup else made
