"""Checks that solvers share: each error names the key, the value and what is allowed."""

from typing import Any

import torch

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.typed import MOST, is_finite
from offbeat.core.units import shown
from offbeat.optim.factories import Factory, base_rate, probe

MOST_CHUNKS = 100_000
"""Parts of a shared vector: each is an event of its own."""


def whole(name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"solver.{name} must be a whole number from {least}, got {shown(value)}")
    if value > most:
        raise ConfigError(f"solver.{name} must be a whole number of at most {most:,}, got {shown(value)}")
    return value


def number(name: str, value: Any, least: float = 0.0, most: float = float("inf"), *, open_end: bool = False) -> float:
    """A finite number in [least, most], or in [least, most) if the end is open."""
    if not is_finite(value) or value < least or value > most or (open_end and value == most):
        end = "" if most == float("inf") else f" and {'below' if open_end else 'at most'} {most:g}"
        raise ConfigError(f"solver.{name} must be a finite number from {least:g}{end}, got {shown(value)}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"solver.{name} must be true or false, got {shown(value)}")
    return value


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise unknown(f"solver.{name}", str(value), known)
    return str(value)


def without_effect(name: str, value: Any, usual: Any, why: str) -> None:
    """Refuses an option that was set where it changes nothing."""
    if value != usual:
        raise ConfigError(f"solver.{name} has no effect {why}: leave it out, got {shown(value)}")


def plain_sgd(opt: Factory, solver: str, why: str) -> None:
    """Refuses any optimizer but SGD without momentum, with the reason."""
    made = probe(opt)
    if type(made) is not torch.optim.SGD or made.param_groups[0]["momentum"]:
        name = type(made).__name__
        with_momentum = " with momentum" if type(made) is torch.optim.SGD else ""
        raise ConfigError(f"{solver} takes plain SGD as its optimizer, got {name}{with_momentum}: {why}")


def additive(opt: Factory, solver: str, why: str) -> float:
    """The learning rate eta of a rule x <- x - eta g that is nothing else: no momentum, no weight decay."""
    plain_sgd(opt, solver, why)
    decay = probe(opt).param_groups[0]["weight_decay"]
    if decay:
        raise ConfigError(f"{solver} takes plain SGD as its optimizer, got weight_decay={decay}: {why}")
    return base_rate(opt)
