"""Any torch optimizer that takes dense gradients without a closure, over one flat vector."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError
from offbeat.core.layout import Layout
from offbeat.core.sparse import dense
from offbeat.optim.factories import Factory, construct, sample
from offbeat.optim.flat_sgd import options_of

# Elementwise rules give the same bits on one flat vector as on separate tensors, in half the time
# (tests/test_schedules.py checks every one). The others (Adafactor, Muon, LARS, LAMB) need the shapes.
ELEMENTWISE = frozenset(
    {"SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop"}
)

Multipliers = Mapping[str, Mapping[Any, float]]
"""Pattern of segment names -> {"lr": factor, "decay": factor}; later patterns win."""


class TorchStepper:
    """A torch optimizer that owns a master vector and publishes a fresh copy after each step."""

    def __init__(self, factory: Factory, x0: Tensor, layout: Layout, multipliers: Multipliers | None = None) -> None:
        self._master = x0.detach().clone()
        self._layout: Layout | None = layout
        if type(sample(factory)).__name__ in ELEMENTWISE and not multipliers:
            self._layout = None
        self._params = [self._master] if self._layout is None else layout.views(self._master)
        for p in self._params:
            p.requires_grad_(True)
        self.torch = construct(factory, self._params)
        for group in self.torch.param_groups:
            group["lr"] = float(group["lr"])
        if multipliers:
            self._spread(layout, multipliers)

    @property
    def lr(self) -> float:
        return float(self.torch.param_groups[0]["lr"])

    @property
    def options(self) -> dict[str, Any]:
        """The options of the torch optimizer: learning rate, momentum, ..."""
        return options_of(self.torch)

    def step(self, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        """One step with gradient g at `factor` times the learning rate; the new parameters, never mutated again.

        `work` is the work clock, for optimizers that change with it. Staleness scales the step, not the gradient:
        Adam cancels a scaled gradient.
        """
        g = dense(g)  # an engine may hold a sparse task's parameters as an ordinary vector
        grads = [g] if self._layout is None else self._layout.views(g)
        for p, grad in zip(self._params, grads, strict=True):
            p.grad = grad
        groups = self.torch.param_groups
        rates = [group["lr"] for group in groups]
        if factor != 1.0:
            for group in groups:
                group["lr"] *= factor
        try:
            self.torch.step()
        except OverflowError:  # Python's own numbers: a power of options that are each in bounds
            options = ", ".join(f"{k}={v}" for k, v in self.options.items())
            raise ConfigError(
                f"optimizer {type(self.torch).__name__} cannot step with {options}: a number of it is out of range"
            ) from None
        for group, lr in zip(groups, rates, strict=True):
            group["lr"] = lr
        for p in self._params:
            p.grad = None
        return self._master.detach().clone()

    def step_from(self, x: Tensor, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        """The same from x, for workers whose parameters also move in other ways."""
        with torch.no_grad():
            self._master.copy_(x)
        return self.step(g, factor)

    def moments(self) -> list[Tensor]:
        """What the optimizer keeps besides the parameters, as flat views: momentum, second moments, ..."""
        kept = [s for p in self._params if (s := self.torch.state.get(p))]
        return [v.reshape(-1) for s in kept for _, v in sorted(s.items()) if isinstance(v, Tensor) and v.dim() > 0]

    def direction(self, g: Tensor) -> Tensor:
        """Where the step with g will go: mu v + g for SGD with a momentum v, g for all others."""
        moments = self.moments()
        if not isinstance(self.torch, torch.optim.SGD) or not moments:
            return g
        v = moments[0] if self._layout is None else self._layout.flatten(moments)
        momentum: float = self.torch.param_groups[0]["momentum"]
        return momentum * v + g

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
        # torch casts state to the parameters' dtype (NAdam's mu_product is float32 always): put back what was saved.
        for number, p in enumerate(p for group in self.torch.param_groups for p in group["params"]):
            for name, value in saved["state"].get(number, {}).items():
                self.torch.state[p][name] = value.clone() if isinstance(value, Tensor) else value

    def _spread(self, layout: Layout, multipliers: Multipliers) -> None:
        """One group a pair of factors, for learning rate and weight decay by segment."""
        (base,) = self.torch.param_groups
        options = {k: v for k, v in base.items() if k != "params"}
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for segment, p in zip(layout.segments, self._params, strict=True):
            groups.setdefault(factors_of(segment.name, multipliers), []).append(p)
        self.torch.param_groups.clear()
        for (lr, decay), params in groups.items():
            scaled = {"lr": base["lr"] * lr, "weight_decay": base.get("weight_decay", 0.0) * decay}
            self.torch.add_param_group({"params": params, **options, **scaled})


def factors_of(name: str, multipliers: Multipliers) -> tuple[float, float]:
    """The factors of a segment's learning rate and weight decay."""
    lr = decay = 1.0
    for pattern, factors in multipliers.items():
        if fnmatchcase(name, pattern):
            lr, decay = factors.get("lr", lr), factors.get("decay", decay)
    return lr, decay
