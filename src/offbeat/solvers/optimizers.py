"""Any torch optimizer that takes dense gradients without a closure, over one flat vector."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.layout import Layout
from offbeat.core.sparse import RowSparse, Table, dense
from offbeat.core.void import Void
from offbeat.solvers.flat_sgd import FlatSGD
from offbeat.solvers.layerwise import LAMB, LARS

Factory = Callable[[Iterable[Any]], torch.optim.Optimizer]
"""`functools.partial(torch.optim.Adam, lr=1e-3)`, say."""

# Elementwise rules give the same bits on one flat vector as on separate tensors, in half the time
# (tests/test_schedules.py checks every one). The others (Adafactor, Muon, LARS, LAMB) need the shapes.
ELEMENTWISE = frozenset(
    {"SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop"}
)
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

Multipliers = Mapping[str, Mapping[Any, float]]
"""Pattern of segment names -> {"lr": factor, "decay": factor}; later patterns win."""


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


class Stepper:
    """A torch optimizer that owns a master vector and publishes a fresh copy after each step."""

    def __init__(self, factory: Factory, x0: Tensor, layout: Layout, multipliers: Multipliers | None = None) -> None:
        self._master = x0.detach().clone()
        self._layout: Layout | None = layout
        if _elementwise(factory) and not multipliers:
            self._layout = None
        self._params = [self._master] if self._layout is None else layout.views(self._master)
        for p in self._params:
            p.requires_grad_(True)
        self.torch = _construct(factory, self._params)
        for group in self.torch.param_groups:
            group["lr"] = float(group["lr"])
        if multipliers:
            self._spread(layout, multipliers)

    @property
    def lr(self) -> float:
        return float(self.torch.param_groups[0]["lr"])

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
        self.torch.step()
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


class TwoStage:
    """Another optimizer for the first samples, then the main one with fresh moments (wongpanich2020, Figure 3)."""

    def __init__(self, first: Factory, then: Factory, samples: float) -> None:
        self.first, self.then, self.samples = first, then, samples

    def __call__(self, params: Iterable[Any]) -> torch.optim.Optimizer:
        return self.then(params)


class TwoStageStepper:
    """Plain steps until the work clock says otherwise."""

    def __init__(self, plan: TwoStage, x0: Tensor, layout: Layout, multipliers: Multipliers | None) -> None:
        self._switch = plan.samples
        self._stages = (Stepper(plan.first, x0, layout, multipliers), Stepper(plan.then, x0, layout, multipliers))
        self._x = x0
        self._work = 0.0

    @property
    def _now(self) -> Stepper:
        return self._stages[self._work > self._switch]

    @property
    def torch(self) -> torch.optim.Optimizer:
        return self._now.torch

    @property
    def lr(self) -> float:
        return self._now.lr

    def step(self, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        return self.step_from(self._x, g, factor, work)

    def step_from(self, x: Tensor, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        self._work = work
        self._x = self._now.step_from(x, g, factor)
        return self._x

    def moments(self) -> list[Tensor]:
        return self._now.moments()

    def state(self) -> dict[str, Any]:
        return {"x": self._x, "work": self._work, "stages": [s.state() for s in self._stages]}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._x, self._work = saved["x"], saved["work"]
        for stage, state in zip(self._stages, saved["stages"], strict=True):
            stage.load(state)


class RowStepper:
    """Plain SGD on a Table, x <- x - lr g: only the rows of the gradient are touched."""

    def __init__(self, factory: Factory, x0: Table) -> None:
        made = _construct(factory, [torch.zeros(1, requires_grad=True)])
        (group,) = made.param_groups
        extras = [k for k in ("momentum", "weight_decay", "maximize") if group.get(k)]
        if type(made) is not torch.optim.SGD or extras:
            got = f"{type(made).__name__}{''.join(f' with {k}' for k in extras)}"
            raise ConfigError(f"row-sparse gradients take plain SGD, got {got}: it would touch every row in every step")
        self.torch, self.lr = made, float(group["lr"])
        self._x = x0

    def step(self, g: RowSparse, factor: float = 1.0, work: float = 0.0) -> Table:
        return self.step_from(self._x, g, factor, work)

    def step_from(self, x: Table, g: RowSparse, factor: float = 1.0, work: float = 0.0) -> Table:
        self._x = x - g * (self.lr * factor)
        return self._x

    def moments(self) -> list[Any]:
        return []

    def state(self) -> dict[str, Any]:
        return {"x": self._x}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._x = saved["x"]


class NoStepper:
    """The optimizer of a timing-only simulation."""

    def __init__(self, x0: Void, lr: float) -> None:
        self._x, self.lr = x0, lr

    def step(self, g: Any, factor: float = 1.0, work: float = 0.0) -> Void:
        return self._x

    def step_from(self, x: Any, g: Any, factor: float = 1.0, work: float = 0.0) -> Void:
        return self._x

    def moments(self) -> list[Any]:
        return []

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, saved: Mapping[str, Any]) -> None:
        pass


AnyStepper = Stepper | TwoStageStepper | FlatSGD | RowStepper | NoStepper


def start(factory: Factory, x0: Any, layout: Layout, multipliers: Multipliers | None = None) -> AnyStepper:
    """The optimizer at work on x0."""
    if isinstance(x0, Void):
        return NoStepper(x0, float(factory([torch.zeros(1, requires_grad=True)]).param_groups[0]["lr"]))
    if isinstance(x0, Table):
        if isinstance(factory, TwoStage) or multipliers:
            raise ConfigError("row-sparse gradients take plain SGD alone: no optimizer.first, no optimizer.multipliers")
        return RowStepper(factory, x0)
    if isinstance(factory, TwoStage):
        return TwoStageStepper(factory, x0, layout, multipliers)
    if not multipliers and (made := _sample(factory)) is not None and FlatSGD.serves(made):
        return FlatSGD(made, x0)
    return Stepper(factory, x0, layout, multipliers)


class Fresh:
    """An optimizer that begins at the first point it steps from; what a worker carries, which may have no point yet."""

    def __init__(self, factory: Factory, layout: Layout, multipliers: Multipliers | None = None) -> None:
        self._make = partial(start, factory, layout=layout, multipliers=multipliers)
        self._made: AnyStepper | None = None

    def step_from(self, x: Any, g: Any, factor: float = 1.0, work: float = 0.0) -> Any:
        if self._made is None:
            self._made = self._make(x)
        return self._made.step_from(x, g, factor, work)

    def reset(self) -> None:
        """Forgets its moments."""
        self._made = None

    def moments(self) -> list[Any]:
        """Flat views of what it keeps besides the parameters."""
        return [] if self._made is None else self._made.moments()

    def replace_moments(self, values: Any) -> None:
        """Takes these instead, one after another."""
        for moment in self.moments():
            moment.copy_(values[: len(moment)])
            values = values[len(moment) :]

    def state(self) -> dict[str, Any]:
        return {} if self._made is None else self._made.state()

    def load(self, saved: Mapping[str, Any]) -> None:
        self._made = None
        if saved:
            self._made = self._make(saved["x"] if "x" in saved else saved["master"])
            self._made.load(saved)


def _elementwise(factory: Factory) -> bool:
    """Whether the factory makes an optimizer that may work on the flat vector."""
    return type(_sample(factory)).__name__ in ELEMENTWISE


def _sample(factory: Factory) -> torch.optim.Optimizer | None:
    """What the factory makes, on one number; None if it needs a matrix, say."""
    try:
        return factory([torch.zeros(1, requires_grad=True)])
    except (ValueError, TypeError, RuntimeError):
        return None


def _construct(factory: Factory, params: Sequence[Tensor]) -> torch.optim.Optimizer:
    try:
        made = factory(params)
    except (ValueError, TypeError, RuntimeError) as e:
        raise ConfigError(f"the optimizer refuses these parameters: {str(e).splitlines()[0]}") from None
    if type(made).__name__ in REFUSED:
        raise ConfigError(f"{type(made).__name__} cannot serve here: {REFUSED[type(made).__name__]}")
    if len(made.param_groups) != 1:
        raise ConfigError(f"the optimizer must hold all parameters in one group, got {len(made.param_groups)}")
    return made
