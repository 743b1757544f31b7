"""Closed-form stability limits of SGD with a constant staleness tau, on the scalar quadratic h x²/2.

Only the product eta h matters (learning rate times curvature): on a real loss h is the largest eigenvalue of the
Hessian. A limit is the eta h below which every trajectory shrinks: at it, the first root of the characteristic
polynomial reaches the unit circle, at z = e^{i theta}. tests/test_oracles.py (A1 to A3) measures them on the simulator.
"""

import math
from collections.abc import Callable

from offbeat.core.errors import ConfigError


def sgd_limit(tau: float) -> float:
    """Largest stable eta h of x_{t+1} = x_t - eta h x_{t-tau}: 2 sin(pi / (2 (2 tau + 1))) (A1).

    The root that leaves is at theta = pi / (2 tau + 1). About pi / (2 tau + 1): twice the workers, half the step.
    """
    tau = _staleness(tau)
    return 2 * math.sin(math.pi / (2 * (2 * tau + 1)))


def momentum_limit(tau: float, mu: float) -> float:
    """Largest stable eta h of heavy ball, v_{t+1} = mu v_t + h x_{t-tau}, x_{t+1} = x_t - eta v_{t+1} (A3).

    z^tau (z - 1)(z - mu) + eta h z = 0 with z = e^{i theta} has a positive eta h where
    (tau - 1/2) theta + arg(z - mu) = pi/2, and there eta h = 2 sin(theta/2) |z - mu|. The left side and eta h both
    grow with theta (0 <= mu < 1), so the one solution in (0, pi] is the limit. tau = 0: 2 (1 + mu); tau = 1: 1 - mu.
    """
    tau, mu = _staleness(tau), _momentum(mu)
    if tau == 0:
        return 2 * (1 + mu)
    if tau == 1:
        return 1 - mu
    theta = _first(lambda theta: (tau - 0.5) * theta + _arg(theta, mu), math.pi / 2)
    return 2 * math.sin(theta / 2) * _distance(theta, mu)


def nesterov_limit(tau: float, mu: float) -> float:
    """Largest stable eta h of Nesterov as torch has it: x_{t+1} = x_t - eta (h x_{t-tau} + mu v_{t+1}) (A3).

    z^tau (z - 1)(z - mu) + eta h ((1 + mu) z - mu) = 0; with nu = mu / (1 + mu), (tau + 1/2) theta + arg(z - mu) -
    arg(z - nu) = pi/2 and eta h = 2 sin(theta/2) |z - mu| / ((1 + mu) |z - nu|). Both sides grow with theta for
    tau >= 1. tau = 0: 2 (1 + mu) / (1 + 2 mu).

    Exact for whole tau. Between two whole ones 1 / limit, which is nearly linear in tau, is interpolated: the
    condition above is not monotone for 0 < tau < 1, and its first solution jumps.
    """
    tau, mu = _staleness(tau), _momentum(mu)
    below = math.floor(tau)
    part = tau - below
    if part == 0:
        return _nesterov_limit(below, mu)
    return 1 / ((1 - part) / _nesterov_limit(below, mu) + part / _nesterov_limit(below + 1, mu))


def _nesterov_limit(tau: int, mu: float) -> float:
    if tau == 0:
        return 2 * (1 + mu) / (1 + 2 * mu)
    nu = mu / (1 + mu)
    theta = _first(lambda theta: (tau + 0.5) * theta + _arg(theta, mu) - _arg(theta, nu), math.pi / 2)
    return 2 * math.sin(theta / 2) * _distance(theta, mu) / ((1 + mu) * _distance(theta, nu))


def _first(phase: Callable[[float], float], target: float) -> float:
    """The theta in (0, pi] where an increasing phase reaches its target, to the last bit (pi if it never does)."""
    low, high = 0.0, math.pi
    while low < (middle := (low + high) / 2) < high:
        if phase(middle) < target:
            low = middle
        else:
            high = middle
    return high


def _arg(theta: float, mu: float) -> float:
    """arg(e^{i theta} - mu), without the cancellation of cos(theta) - mu near 1."""
    return math.atan2(math.sin(theta), (1 - mu) - 2 * math.sin(theta / 2) ** 2)


def _distance(theta: float, mu: float) -> float:
    """|e^{i theta} - mu|."""
    return math.hypot(math.sin(theta), (1 - mu) - 2 * math.sin(theta / 2) ** 2)


def _staleness(tau: float) -> float:
    if not 0 <= tau < math.inf:  # false for nan
        raise ConfigError(f"staleness tau must be a finite number, at least 0, got {tau!r}")
    return float(tau)


def _momentum(mu: float) -> float:
    if not 0 <= mu < 1:
        raise ConfigError(f"momentum mu must be in [0, 1), got {mu!r}")
    return float(mu)
