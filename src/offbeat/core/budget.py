"""Budgets and targets: how long a run lasts, and when a target counts as reached."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.typed import is_finite
from offbeat.core.units import parse_duration, shown

_AMOUNT = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:e[0-9]+)?)\s*(epochs?|samples?|updates?)\s*")
LARGEST = 2**53
"""Up to here floats count one by one."""
UNITS = ("epochs", "samples", "updates", "seconds")
HIGHER_IS_BETTER = {"accuracy": True, "loss": False, "distance": False}


@dataclass(frozen=True)
class Amount:
    """A length of a run: so many epochs, samples, updates or seconds."""

    count: float
    unit: Literal["epochs", "samples", "updates", "seconds"]

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise unknown("unit", self.unit, UNITS)
        if not is_finite(self.count) or not 0 < self.count <= LARGEST:
            raise ConfigError(
                f"a budget must be a positive number of {self.unit} of at most {LARGEST:,}, got {shown(self.count)}"
            )
        if self.unit in ("samples", "updates") and self.count != int(self.count):
            raise ConfigError(f"a budget in {self.unit} must be a whole number, got {self.count!r}")

    @classmethod
    def parse(cls, text: object, what: str = "budget") -> "Amount":
        """`6epochs`, `1000 updates`, `5000samples`, `30s`."""
        if isinstance(text, Amount):
            return text
        match = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
        if match is not None:
            if float(match[1]) == 0:
                raise ConfigError(f"{what} must be more than 0 {match[2].rstrip('s')}s, got {shown(text)}")
            return cls(float(match[1]), match[2].rstrip("s") + "s")  # type: ignore[arg-type]  # checked there
        try:
            float(text)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            pass
        else:  # 6 what? A guess would train for 6 s whoever meant epochs
            raise ConfigError(f"{what} needs a unit, like 6epochs, 5000samples, 1000updates or 30s, got {shown(text)}")
        try:
            return cls(parse_duration(text), "seconds")
        except ConfigError:
            raise ConfigError(
                f"{what} must be like 6epochs, 5000samples, 1000updates or 30s, got {shown(text)}"
            ) from None

    def samples(self, per_epoch: int | None) -> float | None:
        """As samples, where it can be said so; None for updates and seconds."""
        if self.unit == "samples":
            return self.count
        if self.unit != "epochs":
            return None
        if per_epoch is None:
            raise ConfigError("this task has no training set, so epochs mean nothing: use updates, samples or seconds")
        return self.count * per_epoch

    def __str__(self) -> str:
        count = int(self.count) if self.count == int(self.count) else self.count
        return f"{count}s" if self.unit == "seconds" else f"{count}{self.unit}"


@dataclass(frozen=True)
class Target:
    """A value that a held-out metric should reach: `accuracy=0.98`, `loss=0.1`."""

    metric: str
    value: float

    @classmethod
    def parse(cls, text: object) -> "Target":
        if isinstance(text, Target):
            return text
        name, _, number = str(text).partition("=")
        try:
            value = float(number)
        except ValueError:
            raise ConfigError(f"a target must be like accuracy=0.98 or loss=0.1, got {shown(text)}") from None
        name = name.strip()
        if name not in HIGHER_IS_BETTER:
            raise unknown("target metric", name, HIGHER_IS_BETTER)
        if not isfinite(value) or (name == "accuracy" and not 0 < value <= 1):
            allowed = "between 0 and 1" if name == "accuracy" else "finite"
            raise ConfigError(f"target {name} must be {allowed}, got {number.strip()}")
        return cls(name, value)

    def reached(self, value: float | None) -> bool:
        if value is None:
            return False
        return value >= self.value if HIGHER_IS_BETTER[self.metric] else value <= self.value

    def time(self, metrics: Sequence[Mapping[str, Any]]) -> float | None:
        """The time to a target: that of the first evaluation that reaches it. Defined here, used everywhere."""
        return next((float(row["time"]) for row in metrics if self.reached(row.get(self.metric))), None)

    def __str__(self) -> str:
        return f"{self.metric}={self.value:g}"


@dataclass(frozen=True)
class Budget:
    """How long a run lasts: an amount, a target, or both (whichever comes first).

    `per="worker"` gives each worker an amount of its own, as one paper did: its slow worker then trains alone at the
    end. Epochs are samples / size of the training set; per worker, each has count / workers of them, so that together
    they process as much.
    """

    amount: Amount | None = None
    until: Target | None = None
    per: Literal["global", "worker"] = "global"

    def __post_init__(self) -> None:
        if self.amount is None and self.until is None:
            raise ConfigError("a budget needs an amount (6epochs), a target (accuracy=0.98), or both")
        if self.per not in ("global", "worker"):
            raise unknown("budget.per", str(self.per), ("global", "worker"))
        if self.per == "worker" and (self.amount is None or self.amount.unit not in ("epochs", "samples")):
            raise ConfigError("a budget per worker must be in epochs or samples")

    @classmethod
    def parse(cls, value: object) -> "Budget":
        """From `"6epochs"`, `"accuracy=0.98"`, or a Budget."""
        if isinstance(value, Budget):
            return value
        if isinstance(value, str) and "=" in value:
            return cls(until=Target.parse(value))
        return cls(amount=Amount.parse(value))
