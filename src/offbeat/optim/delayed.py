"""Constant delay for any training loop: a wrapper that lets a torch optimizer step with the gradient of d steps ago."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, TypeVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from offbeat.core.errors import ConfigError, unknown

T = TypeVar("T")

FILLINGS = ("wait", "immediate")


def shift(queue: tuple[T, ...], g: T, delay: int) -> tuple[T | None, tuple[T, ...]]:
    """The FIFO: push g_t, pop g_{t-delay}; None comes out while fewer than `delay` gradients wait.

    `queue` is a value, oldest first, at most `delay` long: a checkpoint that holds it is never changed by a later step.
    """
    longer = (*queue, g)
    if len(longer) <= delay:
        return None, longer
    return longer[0], longer[1:]


class Delayed(Optimizer):
    """Step t pushes g_t(x_t) and lets `optimizer` step with g_{t-d}, d = `delay` (Jain et al. 2018).

    It stands in for asynchronous SGD with W = d + 1 equally fast workers. A loop keeps its shape:

        optimizer = Delayed(torch.optim.SGD(model.parameters(), lr=0.01), delay=8)
        ...
        loss.backward(); optimizer.step(); optimizer.zero_grad()

    Learning rate, weight decay and schedule are those of the moment of application; so are the parameters.
    `filling` says what the first d steps do:

    - "wait" (the paper's code): nothing, not even weight decay; the d + 1 first gradients are all taken at x_0. From
      then on the run is that of ASGD with equal compute times, d steps late.
    - "immediate": the optimizer steps with g_t at once, without delay, *and* g_t is queued. Every step is an update,
      but each of the first d gradients is applied twice: fresh at step t, stale at step t + d.

    The last d gradients of a run are never applied. After `step()`, `p.grad` is what the loop computed. A parameter
    without gradient (None) at step t is skipped at step t + d, as torch skips it.

    Memory: d gradients, i.e. d times the parameters, on `device` (None: where the gradients are; "cpu" spares an
    accelerator's memory at the price of two copies a step).

    Construct schedulers on the wrapper. Hooks on `step` run at every step of the loop; those on the state dict are
    the wrapped optimizer's.
    """

    optimizer: Optimizer
    delay: int
    filling: str
    device: torch.device | None
    queue: tuple[dict[Tensor, Tensor], ...]  # per waiting step: parameter -> gradient; no entry where it was None

    def __init__(
        self,
        optimizer: Optimizer,
        delay: int = 32,
        filling: str = "wait",
        *,
        device: str | torch.device | None = None,
    ) -> None:
        _refuse(optimizer)
        if filling not in FILLINGS:
            raise unknown("filling", str(filling), FILLINGS)
        self.optimizer = optimizer
        self.delay = _whole(delay)
        self.filling = filling
        self.device = None if device is None else torch.device(device)
        self.queue = ()
        # Optimizer.__init__ would take over the parameters; an unpickled Optimizer gets its hooks this way too.
        self.__setstate__({})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"):
            self.__dict__[f"_optimizer_{name}_hooks"] = getattr(self.optimizer, f"_optimizer_{name}_hooks")
        super().__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("optimizer", "delay", "filling", "device", "queue")}

    # The wrapped optimizer owns these; load_state_dict replaces the objects, so they are looked up each time.
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = value

    @property
    def state(self) -> defaultdict[Tensor, Any]:
        return self.optimizer.state

    @state.setter
    def state(self, value: defaultdict[Tensor, Any]) -> None:
        self.optimizer.state = value

    @property
    def defaults(self) -> dict[str, Any]:
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, value: dict[str, Any]) -> None:
        self.optimizer.defaults = value

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """New parameters have no gradient in the queue: they first move `delay` steps from now."""
        self.optimizer.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Queue the gradients of now, step with those of `delay` steps ago; returns the closure's loss, of now."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        params = self._params()
        fresh = {p: p.grad for p in params}
        stale, queue = shift(self.queue, self._copies(fresh.items()), self.delay)
        if stale is not None or self.filling == "immediate":
            _put(params, fresh if stale is None else stale)
            try:
                self.optimizer.step()
            finally:
                _put(params, fresh)
        self.queue = queue  # last: a step that raised has queued nothing
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's, and "delayed": delay, filling, and the queue as one list of gradients a step."""
        params = self._params()
        queue = [[gradients.get(p) for p in params] for gradients in self.queue]
        return {
            **self.optimizer.state_dict(),
            "delayed": {"delay": self.delay, "filling": self.filling, "queue": queue},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        try:
            delayed = state_dict["delayed"]
        except KeyError:
            raise ConfigError(
                "this state dict holds no queue of gradients, so it was not saved by Delayed; "
                "to start delaying from a bare optimizer's state, load it before wrapping"
            ) from None
        for name, here in (("delay", self.delay), ("filling", self.filling)):
            if delayed[name] != here:
                raise ConfigError(f"the state dict was saved with {name} {delayed[name]!r}, this wrapper has {here!r}")
        params, rows = self._params(), delayed["queue"]
        if len(rows) > self.delay or any(
            len(row) != len(params)
            or any(g is not None and g.shape != p.shape for p, g in zip(params, row, strict=True))
            for row in rows
        ):
            raise ConfigError(
                f"the saved queue does not fit: it must hold at most {self.delay} rows of {len(params)} gradients, "
                "each shaped as its parameter"
            )
        self.optimizer.load_state_dict({k: v for k, v in state_dict.items() if k != "delayed"})
        self.queue = tuple(self._copies(zip(params, row, strict=True)) for row in rows)

    def __repr__(self) -> str:
        return f"Delayed (delay={self.delay}, filling={self.filling!r}) of {self.optimizer!r}"

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _copies(self, gradients: Iterable[tuple[Tensor, Tensor | None]]) -> dict[Tensor, Tensor]:
        """Copies, because the loop goes on writing into its own: zero_grad(set_to_none=False), accumulation."""
        copies = {}
        for p, g in gradients:
            if g is None:
                continue
            if g.layout != torch.strided:
                raise ConfigError(
                    f"a gradient of layout {g.layout} cannot be delayed: only dense gradients are queued "
                    "(for an Embedding, set sparse=False)"
                )
            copies[p] = g.detach().to(self.device or g.device, copy=True)
        return copies


def _put(params: list[Tensor], gradients: dict[Tensor, Tensor] | dict[Tensor, Tensor | None]) -> None:
    for p in params:
        g = gradients.get(p)
        p.grad = None if g is None else g.to(p.device)  # the very same tensor, unless the queue lives elsewhere


def _whole(delay: object) -> int:
    if isinstance(delay, bool) or not isinstance(delay, Integral) or int(delay) < 0:  # Integral: numpy's integers too
        raise ConfigError(f"delay must be a whole number of steps, at least 0, got {delay!r}")
    return int(delay)


def _refuse(optimizer: Optimizer) -> None:
    """Optimizers whose step is more than a function of one dense gradient."""
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(f"Delayed wraps a torch.optim.Optimizer, got {name}")
    if isinstance(optimizer, Delayed):
        raise ConfigError(
            f"the optimizer is already delayed by {optimizer.delay}; wrap once, with the sum of the delays"
        )
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{name} cannot be delayed: its step needs a closure to evaluate several gradients at points of its own "
            "choice, and a delayed gradient was computed once, d steps ago"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise ConfigError(f"{name} cannot be delayed: it takes sparse gradients, and only dense ones are queued")
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise ConfigError(f"{name} with differentiable=True cannot be delayed: queued gradients carry no graph")
