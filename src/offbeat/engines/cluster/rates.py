"""Bandwidths as people write them; JSON has no infinity."""

import math
from typing import Any

from offbeat.core.units import format_rate, parse_rate

UNLIMITED = "unlimited"


def read_bandwidth(value: Any, what: str = "bandwidth") -> float:
    return math.inf if value in (UNLIMITED, "inf", math.inf) else parse_rate(value, what)


def write_bandwidth(value: float) -> str:
    return UNLIMITED if value == math.inf else format_rate(value)
