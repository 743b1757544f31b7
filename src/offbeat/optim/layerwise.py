"""LARS and LAMB: a learning rate for each layer, from the norms of its weights and of its update."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class LARS(Optimizer):
    """You, Gitman and Ginsburg 2017, "Large batch training of convolutional networks", Algorithm 1.

        lambda_l = trust ||w_l|| / (||g_l|| + wd ||w_l||)
        v_l <- mu v_l + eta lambda_l (g_l + wd w_l)
        w_l <- w_l - v_l

    One-dimensional parameters (biases, normalisation) take lambda_l = 1 and no weight decay unless `adapt_1d`.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        adapt_1d: bool = False,
    ) -> None:
        _check(lr=lr, trust=trust)
        options = {"momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt_1d": adapt_1d}
        super().__init__(params, {"lr": lr, **options})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                wd = group["weight_decay"] if w.dim() > 1 or group["adapt_1d"] else 0.0
                g, scale = w.grad, 1.0
                if w.dim() > 1 or group["adapt_1d"]:
                    norm, size = float(w.norm()), float(g.norm())
                    if norm > 0 and size > 0:
                        scale = group["trust"] * norm / (size + wd * norm)
                v = self.state[w].setdefault("momentum_buffer", torch.zeros_like(w))
                v.mul_(group["momentum"]).add_(g + wd * w, alpha=group["lr"] * scale)
                w.sub_(v)


class LAMB(Optimizer):
    """You et al. 2020, "Large batch optimization for deep learning", Algorithm 2, with bias correction.

        m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2;  r = m_hat / (sqrt(v_hat) + eps)
        w_l <- w_l - eta (||w_l|| / ||r_l + wd w_l||) (r_l + wd w_l)

    One-dimensional parameters take the ratio 1.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        _check(lr=lr, eps=eps)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                g, state = w.grad, self._state(w)
                state["step"] += 1
                m = state["exp_avg"].mul_(b1).add_(g, alpha=1 - b1)
                v = state["exp_avg_sq"].mul_(b2).addcmul_(g, g, value=1 - b2)
                m_hat, v_hat = m / (1 - b1 ** state["step"]), v / (1 - b2 ** state["step"])
                update = m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * w
                ratio = 1.0
                if w.dim() > 1:
                    norm, size = float(w.norm()), float(update.norm())
                    ratio = norm / size if norm > 0 and size > 0 else 1.0
                w.sub_(update, alpha=group["lr"] * ratio)

    def _state(self, w: Tensor) -> Any:
        state = self.state[w]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(w), exp_avg_sq=torch.zeros_like(w))
        return state


def _check(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
