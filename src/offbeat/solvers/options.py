"""Checks that solvers share: each error names the key, the value and what is allowed."""

from math import isfinite
from typing import Any

import torch

from offbeat.core.errors import ConfigError, unknown
from offbeat.optim.factories import Factory, base_rate


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number from `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"solver.{name} must be a whole number from {least}, got {value!r}")
    return value


def number(name: str, value: Any, least: float = 0.0, most: float = float("inf"), *, open_end: bool = False) -> float:
    """A finite number in [least, most], or in [least, most) if the end is open."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not good or value < least or value > most or (open_end and value == most):
        end = "" if most == float("inf") else f" and {'below' if open_end else 'at most'} {most:g}"
        raise ConfigError(f"solver.{name} must be a finite number from {least:g}{end}, got {value!r}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"solver.{name} must be true or false, got {value!r}")
    return value


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise unknown(f"solver.{name}", str(value), known)
    return str(value)


def plain_sgd(opt: Factory, solver: str, why: str) -> None:
    """Refuses any optimizer but SGD without momentum, with the reason."""
    made = opt([torch.zeros(1, requires_grad=True)])
    if type(made) is not torch.optim.SGD or made.param_groups[0]["momentum"]:
        name = type(made).__name__
        with_momentum = " with momentum" if type(made) is torch.optim.SGD else ""
        raise ConfigError(f"{solver} takes plain SGD as its optimizer, got {name}{with_momentum}: {why}")


def additive(opt: Factory, solver: str, why: str) -> float:
    """The learning rate eta of a rule x <- x - eta g that is nothing else: no momentum, no weight decay."""
    plain_sgd(opt, solver, why)
    decay = opt([torch.zeros(1, requires_grad=True)]).param_groups[0]["weight_decay"]
    if decay:
        raise ConfigError(f"{solver} takes plain SGD as its optimizer, got weight_decay={decay}: {why}")
    return base_rate(opt)
