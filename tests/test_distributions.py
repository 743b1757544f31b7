"""Distributions against their textbook moments and tails, and their written form against themselves.

Tolerances are five standard errors of the estimate at n = 200k: a wrong parametrisation is off by far more.
"""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.core.errors import ConfigError
from offbeat.engines.cluster.distributions import (
    EXAMPLES,
    FOREVER,
    ZERO,
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gamma,
    Lognormal,
    Normal,
    Pareto,
    parse_distribution,
)

NUM_SAMPLES = 200_000


def sampled(distribution, n=NUM_SAMPLES):
    samples = distribution.sample(np.random.Generator(np.random.Philox(7)), n)
    assert samples.shape == (n,)
    assert samples.dtype == np.float64
    assert np.isfinite(samples).all()
    assert (samples >= 0).all()
    return samples


@pytest.mark.parametrize(
    ("distribution", "mean", "std"),
    [
        (Normal(0.010, 0.001), 0.010, 0.001),  # ten deviations from 0: clipping is invisible
        (Gamma(0.010, 0.004), 0.010, 0.004),
        (Gamma(0.010, 0.020), 0.010, 0.020),
        (Lognormal(0.010, 0.004), 0.010, 0.004),
        (Lognormal(2.0, 1.0), 2.0, 1.0),
        (Exponential(0.3), 0.3, 0.3),
        (Pareto(0.1, 6.0), 0.1 * 6 / 5, 0.1 * math.sqrt(6 / (5**2 * 4))),  # var = m^2 a / ((a - 1)^2 (a - 2))
        (Empirical((0.1, 0.2, 0.15)), 0.15, math.sqrt((0.05**2 + 0.05**2) / 3)),
    ],
    ids=str,
)
def test_moments(distribution, mean, std):
    samples = sampled(distribution)
    assert distribution.mean == pytest.approx(mean, rel=1e-12)
    assert abs(samples.mean() - mean) < 5 * std / math.sqrt(NUM_SAMPLES)
    # The std of a sample std is about std sqrt((kurtosis - 1) / 4 n); the kurtoses here stay below 40.
    assert abs(samples.std() - std) < 5 * std * math.sqrt(39 / (4 * NUM_SAMPLES))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.0, 1.0), (0.5, 2.0), (1.0, 0.3)])
def test_the_mean_of_a_clipped_normal_is_its_integral(mean, std):
    x = np.linspace(0, mean + 12 * std, 400_001)
    density = np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    integral = np.trapezoid(x * density, x)
    assert Normal(mean, std).mean == pytest.approx(integral, rel=1e-8)
    assert abs(sampled(Normal(mean, std)).mean() - integral) < 5 * std / math.sqrt(NUM_SAMPLES)


def test_a_clipped_normal_keeps_its_mass_at_zero():
    share = (sampled(Normal(mean=1.0, std=1.0)) == 0).mean()
    below_zero = 0.5 * math.erfc(1 / math.sqrt(2))
    assert abs(share - below_zero) < 5 * math.sqrt(below_zero * (1 - below_zero) / NUM_SAMPLES)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(
    ("distribution", "survival"),
    [
        (Pareto(0.01, 2.5), lambda x: (0.01 / x) ** 2.5),
        (Pareto(0.01, 0.8), lambda x: (0.01 / x) ** 0.8),
        (Exponential(0.3), lambda x: math.exp(-x / 0.3)),
        (
            Lognormal(2.0, 1.0),  # s^2 = log(1 + 1/4), m = log 2 - s^2 / 2
            lambda x: 0.5 * math.erfc((math.log(x / 2) + math.log(1.25) / 2) / math.sqrt(2 * math.log(1.25))),
        ),
        (Gamma(1.0, math.sqrt(0.5)), lambda x: math.exp(-2 * x) * (1 + 2 * x)),  # shape 2, scale 1/2: Erlang
    ],
    ids=lambda v: str(v) if isinstance(v, Distribution) else "",
)
def test_tails(distribution, survival, quantile):
    samples = sampled(distribution)
    x = float(np.quantile(samples, quantile))
    p = survival(x)
    assert abs((1 - quantile) - p) < 5 * math.sqrt(p * (1 - p) / NUM_SAMPLES)


def test_a_pareto_starts_at_its_scale_and_may_have_no_mean():
    assert sampled(Pareto(0.01, 2.5)).min() >= 0.01
    assert Pareto(0.01, 1.0).mean == math.inf
    assert Pareto(0.01, 0.5).mean == math.inf


@pytest.mark.parametrize("distribution", [Constant(0.02), Normal(0.02, 0), Gamma(0.02, 0), Lognormal(0.02, 0)], ids=str)
def test_no_spread_is_a_constant(distribution):
    assert (sampled(distribution, 10) == 0.02).all()
    assert distribution.mean == 0.02


@pytest.mark.parametrize("distribution", [ZERO, Normal(0, 0), Gamma(0, 0), Lognormal(0, 0), Exponential(0)], ids=str)
def test_zero_is_zero(distribution):
    assert (sampled(distribution, 10) == 0).all()
    assert distribution.mean == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "distribution",
    [
        Pareto(1.0, 1e-3),
        Pareto(1e99, 1e-320),
        Normal(FOREVER, FOREVER),
        Exponential(FOREVER),
        Gamma(1e90, 5e-324),  # an infinite shape, were it not bounded
        Gamma(1.0, 1e6),
        Gamma(1.0, 1e-12),
        Lognormal(FOREVER, FOREVER),
        Lognormal(1e-300, 1e-294),
    ],
    ids=str,
)
def test_extremes_stay_finite(distribution):
    sampled(distribution, 1000)


def test_empirical_draws_only_its_values_and_each_as_often():
    values, counts = np.unique(sampled(Empirical((0.1, 0.2, 0.2, 0.4))), return_counts=True)
    assert values.tolist() == [0.1, 0.2, 0.4]
    for count, p in zip(counts, (0.25, 0.5, 0.25), strict=True):
        assert abs(count / NUM_SAMPLES - p) < 5 * math.sqrt(p * (1 - p) / NUM_SAMPLES)


seconds = st.floats(min_value=0, max_value=FOREVER)
positive = st.floats(min_value=1e-300, max_value=FOREVER)
spread = st.tuples(positive, st.floats(0, 1e5)).map(lambda pair: (pair[0], min(pair[0] * pair[1], FOREVER)))
distributions = st.one_of(
    seconds.map(Constant),
    st.builds(Normal, seconds, seconds),
    spread.map(lambda pair: Gamma(*pair)),
    spread.map(lambda pair: Lognormal(*pair)),
    seconds.map(Exponential),
    st.builds(Pareto, positive, st.floats(min_value=5e-324, allow_infinity=False)),
    st.lists(seconds, min_size=1).map(lambda values: Empirical(tuple(values))),
)


@settings(deadline=None)
@given(distributions)
def test_the_written_form_reads_back(distribution):
    again = parse_distribution(str(distribution))
    assert again == distribution
    assert type(again) is type(distribution)
    assert hash(again) == hash(distribution)
    assert parse_distribution(distribution) is distribution
    assert pickle.loads(pickle.dumps(distribution)) == distribution


@pytest.mark.parametrize(
    ("written", "distribution"),
    [
        ("10ms", Constant(0.01)),
        (0.01, Constant(0.01)),
        (0, ZERO),
        ("constant(10ms)", Constant(0.01)),
        ("normal(10ms, 2ms)", Normal(0.01, 0.002)),
        (" normal ( 10ms,2ms ) ", Normal(0.01, 0.002)),
        ("gamma(10ms, 2ms)", Gamma(0.01, 0.002)),
        ("lognormal(10ms, 2ms)", Lognormal(0.01, 0.002)),
        ("exponential(10ms)", Exponential(0.01)),
        ("pareto(10ms, 2.5)", Pareto(0.01, 2.5)),
        ("empirical(0.1, 0.2, 0.15)", Empirical((0.1, 0.2, 0.15))),
    ],
)
def test_parse(written, distribution):
    assert parse_distribution(written) == distribution


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_what_they_say(name):
    assert type(parse_distribution(EXAMPLES[name])).__name__.lower() == name


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError) as refusal:
        parse_distribution("norml(10ms, 2ms)")
    known = "constant, empirical, exponential, gamma, lognormal, normal, pareto"
    assert str(refusal.value) == f"unknown distribution 'norml' (did you mean 'normal'?); known: {known}"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "normal",
        "normal()",
        "normal(10ms)",
        "normal(1,2,3)",
        "normal(10ms, -1ms)",
        "normal(10ms, 2ms",
        "gamma(0, 1)",
        "gamma(1, 1e9)",
        "pareto(0, 2)",
        "pareto(1, 0)",
        "pareto(1, inf)",
        "pareto(1, x)",
        "pareto(1, 2s)",
        "1e200s",
        "exponential(nan)",
        "empirical()",
        "empirical(1,,2)",
        "gauss(1,\n2)",
        "no\nsuch(1)",
        "10 parsecs",
        "-1ms",
        "inf",
        -1,
        math.nan,
        math.inf,
        True,
        None,
        [0.1],
        {"mean": 1},
        "normal(1e200, 0)",
    ],
)
def test_malformed_input_is_refused_in_one_line(bad):
    with pytest.raises(ConfigError) as refusal:
        parse_distribution(bad, "compute")
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (Constant, (-1,)),
        (Constant, (math.nan,)),
        (Constant, ("1s",)),
        (Normal, (-1, 0)),
        (Normal, (0, -1)),
        (Gamma, (1, math.inf)),
        (Lognormal, (True, 0)),
        (Exponential, (None,)),
        (Pareto, (1, -2)),
        (Empirical, ((),)),
        (Empirical, ((0.1, -1),)),
        (Pareto, (1, True)),
    ],
)
def test_values_are_checked_at_construction_too(make, values):
    with pytest.raises(ConfigError) as refusal:
        make(*values)
    assert len(str(refusal.value).splitlines()) == 1
    assert "got " in str(refusal.value)
