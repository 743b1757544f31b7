"""Optimizers by name, and the checks that a factory goes through: a wrong name or option lists the right ones."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError, unknown
from offbeat.optim.layerwise import LAMB, LARS

Factory = Callable[[Iterable[Any]], torch.optim.Optimizer]
"""`functools.partial(torch.optim.Adam, lr=1e-3)`, say."""

REFUSED = {
    "LBFGS": "it evaluates the loss several times a step through a closure, and a server has no loss to evaluate",
    "SparseAdam": "it takes sparse gradients only, and offbeat's are dense",
}
OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = {
    **{
        name.lower(): kind
        for name, kind in sorted(vars(torch.optim).items())
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer"
    },
    "lars": LARS,
    "lamb": LAMB,
}
"""By name: every optimizer of torch.optim, and the layer-wise ones."""


def optimizer_factory(name: str, **options: Any) -> Factory:
    """The factory of a named optimizer; a wrong name or option lists the right ones."""
    if name.lower() not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    kind = OPTIMIZERS[name.lower()]
    if kind.__name__ in REFUSED:
        raise ConfigError(f"optimizer {name!r} cannot serve here: {REFUSED[kind.__name__]}")
    lr = options.get("lr")
    if lr is not None and not (isinstance(lr, int | float) and 0 < lr < float("inf")):
        raise ConfigError(f"optimizer.lr must be a positive, finite number, got {lr!r}")
    known = {n: p.default for n, p in inspect.signature(kind).parameters.items() if n != "params"}
    for option, value in options.items():
        if option not in known:
            raise unknown(f"option of optimizer {name!r}", option, known)
        if isinstance(known[option], bool) and not isinstance(value, bool):
            raise ConfigError(f"optimizer.{option} must be true or false, got {value!r}")
        if type(known[option]) in (int, float) and isinstance(value, bool | str | list | dict):
            raise ConfigError(f"optimizer.{option} must be a number, got {value!r}")
        if isinstance(known[option], tuple) and not isinstance(value, list | tuple):
            raise ConfigError(f"optimizer.{option} must be a list such as {list(known[option])}, got {value!r}")
    try:
        kind([torch.zeros(2, 2, requires_grad=True)], **options)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ConfigError(f"optimizer {name!r}: {str(e).splitlines()[0]}") from None
    factory: Factory = partial(kind, **options)
    return factory


def sample(factory: Factory) -> torch.optim.Optimizer | None:
    """What the factory makes, on one number; None if it needs a matrix, say."""
    try:
        return factory([torch.zeros(1, requires_grad=True)])
    except (ValueError, TypeError, RuntimeError):
        return None


def construct(factory: Factory, params: Sequence[Tensor]) -> torch.optim.Optimizer:
    """What the factory makes of these parameters; refused in our words if it cannot be used."""
    try:
        made = factory(params)
    except (ValueError, TypeError, RuntimeError) as e:
        raise ConfigError(f"the optimizer refuses these parameters: {str(e).splitlines()[0]}") from None
    if type(made).__name__ in REFUSED:
        raise ConfigError(f"{type(made).__name__} cannot serve here: {REFUSED[type(made).__name__]}")
    if len(made.param_groups) != 1:
        raise ConfigError(f"the optimizer must hold all parameters in one group, got {len(made.param_groups)}")
    return made


def base_rate(factory: Factory) -> float:
    """The learning rate that an optimizer starts with."""
    return float(factory([torch.zeros(1, requires_grad=True)]).param_groups[0]["lr"])
