"""How large anything in a run's folder may be. A run stays far below; what lies above is damage, or an attack."""

import re
from pathlib import Path

MOST_JSON = 2**28
"""Bytes of a JSON file: run.json of a million workers has half of that."""
MOST_VALUES = 8_000_000
"""Values of a JSON file; each takes memory, however few bytes it is."""
MOST_DEPTH = 32
MOST_TEXT = 100_000
"""Letters of one text."""
MOST_WHY = 10_000
"""Letters of the reason why a run ended; a longer one is cut when it is written."""
MOST_NAME = 1000
MOST_TAGS = 1000
MOST_WORKERS = 1_000_000
MOST_SECONDS = 1e15
MOST_NUMBER = 1e100
"""No sum or norm of 32-bit floats gets there."""
MOST_COUNT = 2**63 - 1
MOST_EXACT = 2**53
"""A whole number beyond it is no float."""
MOST_COLUMNS = 1000
MOST_PACKED = 1000
"""So many bytes of memory may a byte of a large table stand for. Ours: below 300 for 500 workers in lockstep."""
SMALL = 2**28
"""Bytes of memory that need no reason."""


def room() -> float:
    """Bytes of memory that one thing may take: half of what is free; no limit where nobody knows."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        return float("inf")
    return int(found[1]) * 1024 / 2 if found else float("inf")
