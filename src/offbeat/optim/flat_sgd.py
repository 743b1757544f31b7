"""torch's SGD on one flat vector, written out: the same bits in less than half of the time.

A server steps once an update while everybody waits. torch's optimizer steps in place, so that its vector must be copied
to be published, and finds its way through hooks and groups each time.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from offbeat.core.sparse import dense


class FlatSGD:
    """d <- g + weight_decay x;  b <- momentum b + (1 - dampening) d, at first d;  x <- x - lr b.

    With `nesterov`, x <- x - lr (d + momentum b); without momentum, x <- x - lr d.
    """

    def __init__(self, made: torch.optim.Optimizer, x0: Tensor) -> None:
        """`made` holds the options, which may change between steps."""
        self.torch, self._x = made, x0.detach()
        self._b: Tensor | None = None

    @staticmethod
    def serves(made: torch.optim.Optimizer | None) -> bool:
        """Whether a step of this optimizer is the one above and nothing else."""
        if type(made) is not torch.optim.SGD or len(made.param_groups) != 1:
            return False
        hooks = made._optimizer_step_pre_hooks or made._optimizer_step_post_hooks
        others = ("maximize", "foreach", "fused", "differentiable")
        return not hooks and not any(made.param_groups[0][k] for k in others)

    @property
    def lr(self) -> float:
        return float(self.torch.param_groups[0]["lr"])

    @property
    def options(self) -> dict[str, Any]:
        """The options of the torch optimizer: learning rate, momentum, ..."""
        return options_of(self.torch)

    def step(self, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        return self.step_from(self._x, g, factor)

    def step_from(self, x: Tensor, g: Tensor, factor: float = 1.0, work: float = 0.0) -> Tensor:
        group = self.torch.param_groups[0]
        d = dense(g)
        if group["weight_decay"]:
            d = torch.add(d, x, alpha=group["weight_decay"])
        if momentum := group["momentum"]:
            if self._b is None:
                self._b = d.clone()
            else:
                self._b.mul_(momentum).add_(d, alpha=1 - group["dampening"])
            d = torch.add(d, self._b, alpha=momentum) if group["nesterov"] else self._b
        self._x = torch.add(x, d, alpha=-(self.lr * factor))
        return self._x

    def moments(self) -> list[Tensor]:
        return [] if self._b is None else [self._b]

    def direction(self, g: Tensor) -> Tensor:
        """Where the step with g will go: momentum b + g."""
        momentum: float = self.torch.param_groups[0]["momentum"]
        return g if self._b is None else momentum * self._b + g

    def state(self) -> dict[str, Any]:
        """As torch's optimizer keeps it; a copy, because b goes on."""
        kept = {} if self._b is None else {0: {"momentum_buffer": self._b.clone()}}
        return {"master": self._x, "state": kept, "param_groups": self.torch.state_dict()["param_groups"]}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._x = saved["master"]
        kept = saved["state"].get(0)
        self._b = None if kept is None else kept["momentum_buffer"].clone()
        self.torch.load_state_dict({"state": {}, "param_groups": saved["param_groups"]})


def options_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The options of an optimizer, those of its first group: plain values and tuples of them."""
    plain = (str, int, float, bool, tuple, type(None))
    return {k: v for k, v in optimizer.param_groups[0].items() if isinstance(v, plain)}
