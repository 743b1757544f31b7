"""Stability limits against recursions run step by step and companion matrices."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

from offbeat.core.errors import ConfigError
from offbeat.core.stability import momentum_limit, nesterov_limit, sgd_limit

Array = NDArray[np.float64]
MUS = [0.0, 0.3, 0.5, 0.9, 0.99]


def simulate(a: float, tau: int, mu: float, nesterov: bool, num_steps: int) -> Array:
    """x_t of the delayed recursion as torch.optim.SGD would step, from a constant history of ones; a = eta h."""
    x, v = [1.0] * (tau + 1), 0.0
    for _ in range(num_steps):
        g = a * x[-1 - tau]  # eta h x_{t-tau}
        v = mu * v + g
        x.append(x[-1] - (g + mu * v if nesterov else v))
    return np.array(x)


def polynomial(a: float, tau: int, mu: float, nesterov: bool) -> Array:
    """z^tau (z - 1)(z - mu) + a z, or + a ((1 + mu) z - mu) for Nesterov; highest power first."""
    p = np.zeros(tau + 3)
    p[:3] = np.poly([1.0, mu])
    p[-2] += a * (1 + mu) if nesterov else a
    p[-1] -= a * mu if nesterov else 0.0
    return p


def radius(a: float, tau: int, mu: float = 0.0, nesterov: bool = False) -> float:
    """Spectral radius of the companion matrix."""
    return float(np.abs(np.roots(polynomial(a, tau, mu, nesterov))).max())


def limit_by_radius(tau: int, mu: float, nesterov: bool) -> float:
    """The first a where a root leaves the unit circle: scan upwards, then halve. Slow, and knows no angle theta."""
    grid = np.linspace(0.01, 4.2, 420) if tau == 0 else np.geomspace(1e-4, 2.1, 400)
    out = next(i for i, a in enumerate(grid) if radius(a, tau, mu, nesterov) > 1)
    low, high = float(grid[out - 1]), float(grid[out])
    for _ in range(40):
        middle = (low + high) / 2
        if radius(middle, tau, mu, nesterov) > 1:
            high = middle
        else:
            low = middle
    return (low + high) / 2


LIMITS: dict[str, tuple[Callable[[float, float], float], bool]] = {
    "sgd": (lambda tau, mu: sgd_limit(tau), False),
    "momentum": (momentum_limit, False),
    "nesterov": (nesterov_limit, True),
}
CASES = [("sgd", 0.0), *((kind, mu) for kind in ("momentum", "nesterov") for mu in MUS)]
each_case = pytest.mark.parametrize(("kind", "mu"), CASES)


# limits


@each_case
@pytest.mark.parametrize("tau", [0, 1, 2, 3, 7, 12])
def test_limit_is_where_a_root_leaves_the_unit_circle(kind: str, mu: float, tau: int) -> None:
    limit, nesterov = LIMITS[kind]
    assert limit(tau, mu) == pytest.approx(limit_by_radius(tau, mu, nesterov), rel=1e-7)


@each_case
@pytest.mark.parametrize("tau", [0, 1, 4])
def test_nothing_is_stable_again_above_the_limit(kind: str, mu: float, tau: int) -> None:
    limit, nesterov = LIMITS[kind]
    assert all(radius(f * limit(tau, mu), tau, mu, nesterov) > 1 for f in np.geomspace(1.0001, 100, 60))


@each_case
@pytest.mark.parametrize("tau", [0, 1, 2, 5, 20])
def test_recursion_shrinks_below_and_grows_above(kind: str, mu: float, tau: int) -> None:
    limit, nesterov = LIMITS[kind]
    # the mode at the limit turns on the scale of the delay and of momentum's memory; for tau = 0 it flips every step
    span = 150 if tau == 0 else int((2 * tau + 1 + 2 * mu / (1 - mu)) * 150)
    for factor, grows in ((0.98, False), (1.02, True)):
        x = np.abs(simulate(factor * limit(tau, mu), tau, mu, nesterov, 3 * span))
        middle, last = x[span : 2 * span].max(), x[2 * span :].max()
        assert (last > 1.5 * middle) if grows else (last < middle / 1.5)


def growth(a: float, tau: int, mu: float, nesterov: bool, num_delays: int) -> float:
    """log(last amplitude / the one before), tau + 1 steps at a time: their gradients are known together."""
    block, x_last, memory = np.ones(tau + 1), 1.0, np.zeros(1)  # memory: mu v, lfilter's state
    amplitude = []
    for _ in range(num_delays):
        g = a * block  # block holds x_{t-tau} ... x_t
        v, memory = lfilter([1.0], [1.0, -mu], g, zi=memory)
        block = x_last - np.cumsum(g + mu * v if nesterov else v)
        x_last = float(block[-1])
        amplitude.append(np.abs(block).max())
    window = num_delays // 4
    return float(np.log(max(amplitude[-window:]) / max(amplitude[-2 * window : -window])))


def test_the_block_simulation_is_the_recursion() -> None:
    """growth() is what the large tau rest on, so it is checked against the plain loop."""
    for mu, nesterov in ((0.0, False), (0.9, False), (0.9, True)):
        a, tau = 0.03, 4
        x = np.abs(simulate(a, tau, mu, nesterov, 40 * (tau + 1)))[tau + 1 :].reshape(40, tau + 1).max(axis=1)
        assert growth(a, tau, mu, nesterov, 40) == pytest.approx(math.log(x[-10:].max() / x[-20:-10].max()), rel=1e-9)


@each_case
@pytest.mark.parametrize("tau", [300, 10_000])
def test_large_staleness(kind: str, mu: float, tau: int) -> None:
    limit, nesterov = LIMITS[kind]
    assert growth(0.97 * limit(tau, mu), tau, mu, nesterov, 200) < -0.5
    assert growth(1.03 * limit(tau, mu), tau, mu, nesterov, 200) > 0.5


@pytest.mark.parametrize("tau", [0, 1, 2, 3.5, 10, 999, 10_000])
def test_without_momentum_all_three_agree(tau: float) -> None:
    assert momentum_limit(tau, 0.0) == pytest.approx(sgd_limit(tau), rel=1e-12)
    if tau == int(tau):
        assert nesterov_limit(tau, 0.0) == pytest.approx(sgd_limit(tau), rel=1e-12)


@pytest.mark.parametrize("mu", [*MUS, 0.999999])
def test_published_special_cases(mu: float) -> None:
    assert sgd_limit(0) == pytest.approx(2)
    assert sgd_limit(1) == pytest.approx(1)
    assert momentum_limit(0, mu) == pytest.approx(2 * (1 + mu))
    assert momentum_limit(1, mu) == pytest.approx(1 - mu)
    assert nesterov_limit(0, mu) == pytest.approx(2 * (1 + mu) / (1 + 2 * mu))
    # the special values are those of the general branch beside them
    assert momentum_limit(1e-9, mu) == pytest.approx(momentum_limit(0, mu), rel=1e-3)
    assert momentum_limit(1 + 1e-9, mu) == pytest.approx(momentum_limit(1, mu), rel=1e-3)


def test_numbers_of_oracle_a3() -> None:
    assert [round(nesterov_limit(tau, 0.9), 4) for tau in (1, 2, 4)] == [0.2531, 0.0807, 0.0326]
    assert [round(momentum_limit(tau, 0.9), 4) for tau in (1, 2, 4, 6, 8)] == [0.1, 0.0512, 0.0265, 0.0182, 0.0139]


@pytest.mark.parametrize("mu", [0.0, 0.5, 0.9])
def test_momentum_acts_as_mu_over_1_minus_mu_more_staleness(mu: float) -> None:
    """Section 3.3: eta h / (1 - mu) ~ pi / (2 tau + 1 + 2 mu / (1 - mu)) once tau >> mu / (1 - mu)."""
    tau = 5000
    assert momentum_limit(tau, mu) / (1 - mu) == pytest.approx(math.pi / (2 * tau + 1 + 2 * mu / (1 - mu)), rel=1e-5)


@each_case
def test_fractional_staleness_lies_between_its_neighbours_and_is_continuous(kind: str, mu: float) -> None:
    limit, _ = LIMITS[kind]
    taus = np.arange(0, 6.0001, 0.05)
    values = [limit(float(tau), mu) for tau in taus]
    assert all(a > b for a, b in pairwise(values))
    for tau in (1, 2, 3, 8, 5000):
        for near in (tau - 1e-7, tau + 1e-7):
            assert limit(near, mu) == pytest.approx(limit(tau, mu), rel=1e-4)


def test_nesterov_between_whole_numbers_interpolates_the_reciprocal() -> None:
    low, high = nesterov_limit(3, 0.9), nesterov_limit(4, 0.9)
    assert 1 / nesterov_limit(3.25, 0.9) == pytest.approx(0.75 / low + 0.25 / high)


@pytest.mark.parametrize("mu", [0.0, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("tau", [1, 37, 10_000, 1e7])
def test_the_boundary_has_a_root_on_the_unit_circle(tau: float, mu: float) -> None:
    """Where no simulation reaches: some e^{i theta} must solve the characteristic equation at the limit."""
    for limit, nesterov in ((momentum_limit(tau, mu), False), (nesterov_limit(tau, mu), True)):
        # |z - 1||z - mu| = a |z| or a |(1 + mu) z - mu| gives theta from the moduli alone; the phases must then agree
        low, high = 0.0, math.pi
        for _ in range(200):
            theta = (low + high) / 2
            z1, zmu = 2 * math.sin(theta / 2), math.hypot(1 - mu, 2 * math.sqrt(mu) * math.sin(theta / 2))
            right = math.hypot(1, 2 * math.sqrt(mu * (1 + mu)) * math.sin(theta / 2)) if nesterov else 1.0
            low, high = (theta, high) if z1 * zmu < limit * right else (low, theta)
        minus_one = math.pi / 2 + theta / 2
        minus_mu = math.atan2(math.sin(theta), 1 - mu - 2 * math.sin(theta / 2) ** 2)
        plus = (
            math.atan2((1 + mu) * math.sin(theta), 1 - (1 + mu) * 2 * math.sin(theta / 2) ** 2) if nesterov else theta
        )
        assert tau * theta + minus_one + minus_mu - plus == pytest.approx(math.pi, abs=1e-6)


# refusals


@pytest.mark.parametrize("tau", [-1, -1e-9, math.nan, math.inf])
def test_staleness_must_be_finite_and_not_negative(tau: float) -> None:
    for call in (
        lambda: sgd_limit(tau),
        lambda: momentum_limit(tau, 0.5),
        lambda: nesterov_limit(tau, 0.5),
    ):
        with pytest.raises(ConfigError, match="staleness tau must be a finite number, at least 0, got"):
            call()


@pytest.mark.parametrize("mu", [-0.1, 1.0, 1.5, math.nan])
def test_momentum_must_be_below_one(mu: float) -> None:
    for limit in (momentum_limit, nesterov_limit):
        with pytest.raises(ConfigError, match=r"momentum mu must be in \[0, 1\), got"):
            limit(3, mu)
