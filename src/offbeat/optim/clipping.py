"""Gradients of bounded norm."""

from typing import Any


def clipped(g: Any, bound: float | None) -> Any:
    """g, shortened to norm `bound` if it is longer; as it is where there is no bound."""
    if bound is None:
        return g
    norm = float(g.norm())
    return g * (bound / norm) if norm > bound else g
