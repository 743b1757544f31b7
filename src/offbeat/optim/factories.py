"""Optimizers by name, and the checks that a factory goes through: a wrong name or option lists the right ones."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.typed import MOST, check_options, is_finite
from offbeat.core.units import shown
from offbeat.optim.layerwise import LAMB, LARS

Factory = Callable[[Iterable[Any]], torch.optim.Optimizer]
"""`functools.partial(torch.optim.Adam, lr=1e-3)`, say."""

REFUSED = {
    "LBFGS": "it evaluates the loss several times a step through a closure, and a server has no loss to evaluate",
    "SparseAdam": "it takes sparse gradients only, and offbeat's are dense",
}
IDLE = {
    "capturable": "it is for CUDA graphs, and offbeat computes on the CPU",
    "differentiable": "nothing here differentiates through a step",
}
"""Options that torch takes and that can only fail."""
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
    if not isinstance(name, str) or name.lower() not in OPTIMIZERS:
        raise unknown("optimizer", str(name), OPTIMIZERS)
    kind = OPTIMIZERS[name.lower()]
    if kind.__name__ in REFUSED:
        raise ConfigError(f"optimizer {name!r} cannot serve here: {REFUSED[kind.__name__]}")
    for option in options:
        if option not in known_options(kind):
            raise unknown(f"option of optimizer {name!r}", option, known_options(kind))
    if "lr" in options and not (is_finite(options["lr"]) and options["lr"] > 0):
        raise ConfigError(f"optimizer.lr must be a positive, finite number, got {shown(options['lr'])}")
    check_options(kind, options, "optimizer", most=MOST)
    for option, why in IDLE.items():
        if options.get(option):
            raise ConfigError(f"optimizer.{option} cannot be set: {why}")
    try:
        kind([torch.zeros(2, 2, requires_grad=True)], **options)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ConfigError(f"optimizer {name!r}: {str(e).splitlines()[0]}") from None
    factory: Factory = partial(kind, **options)
    return factory


def known_options(kind: type[torch.optim.Optimizer]) -> list[str]:
    """The options of an optimizer."""
    return [name for name in inspect.signature(kind).parameters if name != "params"]


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


def probe(factory: Factory) -> torch.optim.Optimizer:
    """What the factory makes of a small matrix, to look at its options."""
    return construct(factory, [torch.zeros(2, 2, requires_grad=True)])


def base_rate(factory: Factory) -> float:
    """The learning rate that an optimizer starts with."""
    return float(probe(factory).param_groups[0]["lr"])
