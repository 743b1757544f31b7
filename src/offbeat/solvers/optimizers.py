"""Any torch optimizer that takes dense gradients without a closure, over one flat vector."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.layout import Layout
from offbeat.core.void import Void

Factory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
"""`functools.partial(torch.optim.Adam, lr=1e-3)`, say."""

# Elementwise rules give the same bits on one flat vector as on separate tensors, in half the time
# (tests/test_optimizers.py checks every one). The others (Adafactor, Muon) need the shapes.
ELEMENTWISE = frozenset(
    {"SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop"}
)
REFUSED = {
    "LBFGS": "it evaluates the loss several times a step through a closure, and a server has no loss to evaluate",
    "SparseAdam": "it takes sparse gradients only, and offbeat's are dense",
}
OPTIMIZERS: Mapping[str, str] = {
    name.lower(): name
    for name in sorted(vars(torch.optim))
    if isinstance(getattr(torch.optim, name), type)
    and issubclass(getattr(torch.optim, name), torch.optim.Optimizer)
    and name != "Optimizer"
}
"""Name in configurations -> class in torch.optim."""


def optimizer_factory(name: str, **options: Any) -> Factory:
    """The factory of a named torch optimizer; a wrong name or option lists the right ones."""
    if name.lower() not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    kind = getattr(torch.optim, OPTIMIZERS[name.lower()])
    if kind.__name__ in REFUSED:
        raise ConfigError(f"optimizer {name!r} cannot serve here: {REFUSED[kind.__name__]}")
    lr = options.get("lr")
    if lr is not None and not (isinstance(lr, int | float) and 0 < lr < float("inf")):
        raise ConfigError(f"optimizer.lr must be a positive, finite number, got {lr!r}")
    try:
        kind([torch.zeros(2, 2, requires_grad=True)], **options)
    except TypeError:
        known = [n for n in inspect.signature(kind).parameters if n != "params"]
        wrong = next((o for o in options if o not in known), None)
        if wrong is None:
            raise ConfigError(f"optimizer {name!r} does not take these options: {options}") from None
        raise unknown(f"option of optimizer {name!r}", wrong, known) from None
    except (ValueError, RuntimeError) as e:
        raise ConfigError(f"optimizer {name!r}: {str(e).splitlines()[0]}") from None
    factory: Factory = partial(kind, **options)
    return factory


class Stepper:
    """A torch optimizer that owns a master vector and publishes a fresh copy after each step."""

    def __init__(self, factory: Factory, x0: Tensor, layout: Layout) -> None:
        self._master = x0.detach().clone()
        probe = type(factory([torch.zeros(1, requires_grad=True)])).__name__ if _takes_flat(factory) else ""
        flat = probe in ELEMENTWISE
        self._params = [self._master] if flat else layout.views(self._master)
        self._layout = None if flat else layout
        for p in self._params:
            p.requires_grad_(True)
        self.torch = _construct(factory, self._params)
        if any(len(g["params"]) != len(self._params) for g in self.torch.param_groups):
            raise ConfigError("the optimizer must hold all parameters in one group")

    @property
    def lr(self) -> float:
        return float(self.torch.param_groups[0]["lr"])

    def step(self, g: Tensor, factor: float = 1.0) -> Tensor:
        """One step with gradient g at `factor` times the learning rate; the new parameters, never mutated again.

        Staleness scales the step, not the gradient: Adam cancels a scaled gradient.
        """
        grads = [g] if self._layout is None else self._layout.views(g)
        for p, grad in zip(self._params, grads, strict=True):
            p.grad = grad
        group = self.torch.param_groups[0]
        lr = group["lr"]
        if factor != 1.0:
            group["lr"] = lr * factor
        self.torch.step()
        group["lr"] = lr
        for p in self._params:
            p.grad = None
        return self._master.detach().clone()

    def state(self) -> dict[str, Any]:
        """Plain values and tensors; copies, because torch goes on mutating its own."""
        saved = self.torch.state_dict()
        copies = {
            k: {n: v.clone() if isinstance(v, Tensor) else v for n, v in s.items()} for k, s in saved["state"].items()
        }
        return {"master": self._master.detach().clone(), "state": copies, "param_groups": saved["param_groups"]}

    def load(self, saved: Mapping[str, Any]) -> None:
        with torch.no_grad():
            self._master.copy_(saved["master"])
        self.torch.load_state_dict({"state": saved["state"], "param_groups": saved["param_groups"]})


class NoStepper:
    """The optimizer of a timing-only simulation."""

    lr = 0.0

    def __init__(self, x0: Void) -> None:
        self._x = x0

    def step(self, g: Any, factor: float = 1.0) -> Void:
        return self._x

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, saved: Mapping[str, Any]) -> None:
        pass


def start(factory: Factory, x0: Any, layout: Layout) -> Stepper | NoStepper:
    """The optimizer at work on x0."""
    return NoStepper(x0) if isinstance(x0, Void) else Stepper(factory, x0, layout)


def _takes_flat(factory: Factory) -> bool:
    try:
        factory([torch.zeros(1, requires_grad=True)])
    except (ValueError, TypeError, RuntimeError):
        return False
    return True


def _construct(factory: Factory, params: list[Tensor]) -> torch.optim.Optimizer:
    try:
        made = factory(params)
    except (ValueError, TypeError, RuntimeError) as e:
        raise ConfigError(f"the optimizer refuses these parameters: {str(e).splitlines()[0]}") from None
    if type(made).__name__ in REFUSED:
        raise ConfigError(f"{type(made).__name__} cannot serve here: {REFUSED[type(made).__name__]}")
    return made
