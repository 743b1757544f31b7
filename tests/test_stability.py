"""Stability limits against recursions run step by step, companion matrices, and a Lyapunov equation."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

from offbeat.core.errors import ConfigError
from offbeat.core.stability import fastest, momentum_limit, nesterov_limit, sgd_limit, stationary_variance

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


# the fastest step


@pytest.mark.parametrize("tau", [1, 2, 4, 9])
def test_fastest_step_has_the_smallest_radius(tau: int) -> None:
    best = fastest(tau)
    assert radius(best.eta_h, tau) == pytest.approx(best.rate, abs=1e-6)  # a double root: half the digits
    others = np.linspace(0.02, 0.999, 200) * sgd_limit(tau)
    assert min(radius(a, tau) for a in others) > best.rate - 1e-6
    assert radius(0.99 * best.eta_h, tau) > best.rate + 1e-3 / tau
    assert radius(1.01 * best.eta_h, tau) > best.rate + 1e-3 / tau


@pytest.mark.parametrize("tau", [1, 2, 4, 9])
def test_monotone_exactly_below_the_fastest_step(tau: int) -> None:
    below = simulate(0.98 * fastest(tau).eta_h, tau, 0.0, False, 300)
    assert (below > 0).all()
    assert (np.diff(below[tau:]) < 0).all()
    assert (simulate(1.02 * fastest(tau).eta_h, tau, 0.0, False, 100 * (tau + 1)) < 0).any()


def test_fastest_without_staleness_is_one_newton_step() -> None:
    assert fastest(0) == (1.0, 0.0)
    assert simulate(fastest(0).eta_h, 0, 0.0, False, 1)[-1] == 0


@pytest.mark.parametrize("tau", [0.5, 3.7, 1e4, 1e8])
def test_fastest_is_a_double_root(tau: float) -> None:
    """z^tau (1 - z) = a and its derivative vanish at z = rate, for any real tau."""
    best = fastest(tau)
    gap = 1 / (tau + 1)  # 1 - rate
    assert best.rate == pytest.approx(1 - gap)
    assert math.exp(tau * math.log1p(-gap)) * gap == pytest.approx(best.eta_h, rel=1e-9)
    assert tau * gap - best.rate == pytest.approx(0, abs=1e-9)


# noise


def lyapunov(a: float, tau: int) -> float:
    """P = A P A' + e1 e1' for the companion matrix of (x_t, ..., x_{t-tau}), solved as one linear system."""
    n = tau + 1
    A = np.eye(n, k=-1)
    A[0, 0] += 1
    A[0, tau] -= a
    noise = np.zeros((n, n))
    noise[0, 0] = 1
    P = np.linalg.solve(np.eye(n * n) - np.kron(A, A), noise.ravel()).reshape(n, n)
    return float(P[0, 0])


@pytest.mark.parametrize("tau", [0, 1, 2, 3, 8, 20])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.99])
def test_variance_solves_the_lyapunov_equation(tau: int, share: float) -> None:
    a = share * sgd_limit(tau)
    assert stationary_variance(a, tau) == pytest.approx(lyapunov(a, tau), rel=1e-8)


@pytest.mark.parametrize("a", [0.01, 0.4, 0.9])
def test_variance_closed_forms(a: float) -> None:
    assert stationary_variance(a, 0) == pytest.approx(1 / (a * (2 - a)))
    assert stationary_variance(a, 1) == pytest.approx((1 + a) / (a * (2 + a) * (1 - a)))


@pytest.mark.parametrize("tau", [0, 2, 6])
def test_variance_of_a_long_noisy_run(tau: int) -> None:
    a, num_runs = 0.5 * sgd_limit(tau), 20_000
    rng = np.random.default_rng(3)
    history = [np.zeros(num_runs)] * (tau + 1)
    for _ in range(60 * (tau + 1)):
        history.append(history[-1] - a * history[-1 - tau] + rng.standard_normal(num_runs))
    # the variance of a sample variance is 2 / n: five standard errors
    assert np.var(history[-1]) == pytest.approx(stationary_variance(a, tau), rel=5 * math.sqrt(2 / num_runs))


def test_variance_of_many_small_steps_is_the_delayed_diffusions() -> None:
    a, tau = 1e-6, 1_000_000
    assert stationary_variance(a, tau) == pytest.approx((1 + math.sin(1)) / (2 * a * math.cos(1)), rel=1e-5)


@pytest.mark.parametrize("tau", [0, 1, 2.5, 100])
def test_variance_is_infinite_outside_the_stable_range(tau: float) -> None:
    limit = sgd_limit(tau)
    assert 1e5 < stationary_variance(limit * (1 - 1e-9), tau) < math.inf
    for a in (-0.1, 0.0, limit, 2 * limit, 3.0, math.inf):
        assert stationary_variance(a, tau) == math.inf


# refusals


@pytest.mark.parametrize("tau", [-1, -1e-9, math.nan, math.inf])
def test_staleness_must_be_finite_and_not_negative(tau: float) -> None:
    for call in (
        lambda: sgd_limit(tau),
        lambda: fastest(tau),
        lambda: momentum_limit(tau, 0.5),
        lambda: nesterov_limit(tau, 0.5),
        lambda: stationary_variance(0.1, tau),
    ):
        with pytest.raises(ConfigError, match="staleness tau must be a finite number, at least 0, got"):
            call()


@pytest.mark.parametrize("mu", [-0.1, 1.0, 1.5, math.nan])
def test_momentum_must_be_below_one(mu: float) -> None:
    for limit in (momentum_limit, nesterov_limit):
        with pytest.raises(ConfigError, match=r"momentum mu must be in \[0, 1\), got"):
            limit(3, mu)


def test_a_must_be_a_number() -> None:
    with pytest.raises(ConfigError, match="a = eta h must be a number"):
        stationary_variance(math.nan, 1)
