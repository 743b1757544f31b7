"""Delayed recursions on h x^2 / 2: trajectories by hand, and their growth from the roots of the characteristic."""

import numpy as np


def trajectory(a: float, tau: int, steps: int, *, mu: float = 0.0, nesterov: bool = False) -> np.ndarray:
    """x_0 ... x_steps with lr h = a, staleness min(t, tau): v = mu v + a x_{t-tau}; x -= v (or a x_{t-tau} + mu v)."""
    x = [1.0]
    v = 0.0
    for t in range(steps):
        g = a * x[max(0, t - tau)]
        v = mu * v + g
        x.append(x[t] - (g + mu * v if nesterov else v))
    return np.array(x)


def growth(a: float, tau: int, mu: float = 0.0, nesterov: bool = False) -> float:
    """The largest modulus of the roots: the factor by which |x| changes a step in the long run."""
    z = np.poly1d([1, 0])
    one = np.poly1d([1])

    def power(n: int) -> np.poly1d:
        return z**n if n else one

    if nesterov:  # z^tau (z - 1)(z - mu) + a ((1 + mu) z - mu)
        p = power(tau) * (z - 1) * (z - mu) + a * ((1 + mu) * z - mu)
    else:  # z^tau (z - 1)(z - mu) + a z, from x_{t+1} - x_t = mu (x_t - x_{t-1}) - a x_{t-tau}
        p = power(tau) * (z - 1) * (z - mu) + a * z
    return float(np.abs(p.roots).max())


def limit(tau: int, mu: float = 0.0, nesterov: bool = False) -> float:
    """The largest stable a, by bisection on the growth: no closed form."""
    low, high = 0.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        if growth(middle, tau, mu, nesterov) < 1:
            low = middle
        else:
            high = middle
    return low
