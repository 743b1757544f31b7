"""Human forms of times, sizes, rates and worker lists: exact values, exact round trips, one-line refusals."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.core.errors import ConfigError
from offbeat.core.units import (
    format_duration,
    format_rate,
    format_size,
    format_workers,
    parse_duration,
    parse_rate,
    parse_size,
    parse_workers,
    shown,
)

non_negative = st.floats(min_value=0, allow_nan=False, allow_infinity=False)

UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "": Fraction(1),
}


@settings(deadline=None)
@given(st.decimals(min_value=0, max_value=10**6, places=4), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_a_duration_is_the_float_nearest_to_the_exact_product(number, unit, space):
    assert parse_duration(f"{number:f}{space}{unit}") == float(Fraction(f"{number:f}") * UNITS[unit])


@settings(deadline=None)
@given(non_negative)
def test_durations_and_rates_come_back_bit_for_bit(value):
    assert parse_duration(format_duration(value)) == value
    assert parse_rate(format_rate(value)) == value
    assert parse_duration(value) == value
    assert parse_duration(repr(value)) == value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.03, "30ms"),
        (1.5, "1.5s"),
        (120, "2min"),
        (5400, "90min"),
        (7200, "2h"),
        (1e-4, "100us"),
        (1e-8, "10ns"),
        (100, "100s"),
        (0.1 + 0.2, "300.00000000000004ms"),
    ],
)
def test_durations_are_written_as_people_write_them(seconds, text):
    assert format_duration(seconds) == text


def test_negative_zero_becomes_zero():
    assert [math.copysign(1, parse_duration(zero)) for zero in ("-0s", -0.0)] == [1, 1]


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("10MB", 10 * 10**6),
        ("1GiB", 2**30),
        (1234, 1234),
        ("1.5kB", 1500),
        ("1.5KiB", 1536),
        ("7", 7),
        ("7 B", 7),
        ("2KB", 2000),
        ("3TB", 3 * 10**12),
        ("0.3kB", 300),
        (12.0, 12),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_sizes(text, num_bytes):
    parsed = parse_size(text)
    assert parsed == num_bytes
    assert type(parsed) is int


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1) | st.builds(lambda n, k: n << k, st.integers(0, 999), st.integers(0, 50)))
def test_sizes_come_back(num_bytes):
    assert parse_size(format_size(num_bytes)) == num_bytes


def test_sizes_are_written_in_the_shorter_system():
    assert [format_size(n) for n in (0, 512, 10**7, 2**30, 1024, 1234)] == [
        "0B",
        "512B",
        "10MB",
        "1GiB",
        "1KiB",
        "1.234kB",
    ]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10Gbps", 10**10 / 8),
        ("1GB/s", 1e9),
        ("125000000", 1.25e8),
        ("100Mbit/s", 1e8 / 8),
        ("1Gb/s", 1e9 / 8),
        ("1GiB/s", 2**30),
        ("8bps", 1),
        (5, 5),
    ],
)
def test_rates(text, rate):
    assert parse_rate(text) == rate


def test_a_bit_rate_is_written_in_bits():
    assert format_rate(1.25e9) == "10Gbps"


@pytest.mark.parametrize(
    ("text", "workers"),
    [("0,3-5", (0, 3, 4, 5)), ("all", tuple(range(8))), ("0", (0,)), (3, (3,)), (" 5 - 7 , 5,1", (1, 5, 6, 7))],
)
def test_workers(text, workers):
    assert parse_workers(text, 8) == workers


@settings(deadline=None)
@given(st.sets(st.integers(0, 40), min_size=1))
def test_workers_come_back(workers):
    assert parse_workers(format_workers(workers), 41) == tuple(sorted(workers))


NOT_QUANTITIES = [
    "",
    "ms",
    "-1s",
    "nan",
    "inf",
    "1e999s",
    "1e99999999999999999999s",
    "1s 2s",
    "1_000",
    "1,5s",
    "٣s",
    "--1",
]
NOT_QUANTITIES += [
    "30 parsecs",
    "30MS",
    "3\ns\n4",
    -1,
    -0.1,
    math.nan,
    math.inf,
    -math.inf,
    True,
    None,
    [1],
    10**400,
    b"1s",
]
NOT_QUANTITIES += [10**5000]


@pytest.mark.parametrize("parse", [parse_duration, parse_size, parse_rate])
@pytest.mark.parametrize("bad", NOT_QUANTITIES, ids=lambda bad: shown(bad)[:30])
def test_malformed_quantities_are_refused_in_one_line(parse, bad):
    with pytest.raises(ConfigError) as refusal:
        parse(bad, "the thing")
    message = str(refusal.value)
    assert len(message.splitlines()) == 1
    assert message.startswith("the thing must be ")
    assert "such as" in message
    assert message.endswith(f"got {shown(bad)}")


@pytest.mark.parametrize("bad", ["1.5B", "10Mb", 0.5, 2**63, "1e-9", "10s"])
def test_sizes_are_whole_bytes(bad):
    with pytest.raises(ConfigError, match="whole number of bytes"):
        parse_size(bad)


@pytest.mark.parametrize("bad", ["", "a", "1-", "-1", "5-3", "1,,2", "0.5", "9" * 5000, True, None, 1.0, [1], "1\n2x"])
def test_malformed_workers_are_refused_in_one_line(bad):
    with pytest.raises(ConfigError) as refusal:
        parse_workers(bad, 8)
    assert len(str(refusal.value).splitlines()) == 1
    assert "must be like '0,3-5', 'all' or one of 0-7" in str(refusal.value)


@pytest.mark.parametrize("bad", ["9", 9, "0-9", "1,9", "9-999999999999"])
def test_workers_out_of_range_name_the_worker_and_the_range(bad):
    with pytest.raises(ConfigError) as refusal:
        parse_workers(bad, 8, "delay")
    assert str(refusal.value) == "delay names worker 9, but there are 8 workers: 0-7"


def test_a_negative_worker_is_out_of_range():
    with pytest.raises(ConfigError, match=r"names worker -1, but there is 1 worker: 0$"):
        parse_workers(-1, 1)


@pytest.mark.parametrize(("form", "bad"), [(format_duration, math.nan), (format_duration, -1.0), (format_size, -1)])
def test_what_cannot_be_read_back_is_not_written(form, bad):
    with pytest.raises(ConfigError):
        form(bad)


@pytest.mark.parametrize("bad", [(), (-1, 0)])
def test_only_workers_are_written(bad):
    with pytest.raises(ConfigError, match="numbers from 0"):
        format_workers(bad)
