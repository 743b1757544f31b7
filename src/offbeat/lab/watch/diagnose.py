"""Why did it diverge? The likely cause, in words, from the stability limits of a quadratic."""

from typing import Any

import torch

from offbeat.core.feed import Feed
from offbeat.core.sparse import dense
from offbeat.core.stability import momentum_limit, nesterov_limit
from offbeat.core.task import Point, Task

_STEPS = 12


def curvature(task: Task, feed: Feed, seed: int) -> float | None:
    """The largest eigenvalue of the Hessian at the initial point on one batch, by power iteration.

    H v is taken as a difference of two gradients, so any task will do. None where it is not finite.
    """
    point = task.init(seed)
    point = Point(dense(point.x), point.buffers)
    batch = feed.indices(0, 0)
    v = torch.ones_like(point.x) / point.x.numel() ** 0.5
    size = max(float(point.x.norm()), 1.0)
    h = 0.0
    for _ in range(_STEPS):
        step = 1e-3 * size * v

        def at(x: Any) -> Any:
            return dense(task.gradient(Point(x, point.buffers), batch, 0).value)

        hv = (at(point.x + step) - at(point.x - step)) / (2e-3 * size)
        h = float(hv.norm())
        if not 0 < h < float("inf"):
            return None
        v = hv / h
    return h


def cause(task: Task, feed: Feed, seed: int, group: dict[str, Any] | None, mean_staleness: float | None) -> str:
    """One sentence: which of learning rate, staleness and momentum is beyond the limit, with the numbers."""
    lr = None if group is None else group.get("lr")
    if group is None or lr is None:
        return "likely cause unknown: the solver has no torch optimizer to look at"
    tau = mean_staleness or 0.0
    mu = float(group.get("momentum") or 0.0)
    kind = "Nesterov momentum" if group.get("nesterov") else "momentum"
    if "betas" in group:
        where = f" at mean staleness {tau:.1f}" if tau >= 0.5 else ""
        return f"likely cause: learning rate {lr:g} is too large for an adaptive optimizer{where}; try {lr / 10:g}"
    h = curvature(task, feed, seed)
    if h is None:
        return f"likely cause: learning rate {lr:g} (curvature at the start could not be measured)"

    def limit(tau: float, mu: float) -> float:
        return (nesterov_limit(tau, mu) if group.get("nesterov") else momentum_limit(tau, mu)) / h

    here = f"curvature about {h:.3g} at the start"
    fresh = limit(0.0, mu)
    if lr > fresh:
        return (
            f"likely cause: learning rate {lr:g} is beyond the stability limit {fresh:.3g} even without staleness "
            f"({here})"
        )
    stale = limit(tau, mu)
    if lr > stale:
        if mu and lr <= limit(tau, 0.0):
            return (
                f"likely cause: {kind} {mu:g} with mean staleness {tau:.1f}: learning rate {lr:g} is beyond the "
                f"stability limit {stale:.3g}; without momentum it would be {limit(tau, 0.0):.3g} ({here})"
            )
        return (
            f"likely cause: learning rate x staleness: {lr:g} is beyond the stability limit {stale:.3g} at mean "
            f"staleness {tau:.1f}, though not beyond {fresh:.3g} without staleness ({here})"
        )
    return (
        f"likely cause: a sharper region than at the start: learning rate {lr:g} is within the limit {stale:.3g} for "
        f"mean staleness {tau:.1f} there ({here}); a lower learning rate, a warm-up or clipping may help"
    )
