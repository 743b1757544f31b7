"""Which runs: conditions on any column of the tidy table, such as solver=asgd or accuracy>0.9."""

import re
from collections.abc import Sequence
from typing import Any

from offbeat.core.errors import ConfigError, unknown
from offbeat.folders.run_files import RunFiles
from offbeat.report.read import tidy

_CONDITION = re.compile(r"\s*([\w.\-]+)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*")


def matching(runs: Sequence[RunFiles], conditions: Sequence[str]) -> list[RunFiles]:
    """The runs that meet all conditions. A run without the value meets none, except !=."""
    rows = [tidy(r) for r in runs]
    columns = dict.fromkeys(k for row in rows for k in row)
    keep = list(range(len(runs)))
    for text in conditions:
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise ConfigError(f"a condition is like solver=asgd or accuracy>0.9, got {text!r}")
        key, sign, value = found.groups()
        if rows and key not in columns:
            raise unknown("column", key, columns)
        keep = [i for i in keep if _holds(rows[i].get(key), sign, value, key)]
    return [runs[i] for i in keep]


def _holds(have: Any, sign: str, want: str, key: str) -> bool:
    if sign in ("=", "!="):
        parts = [p.strip() for p in str(have).split(",")] if key == "tags" else [_text(have)]
        return (_text(_typed(want)) in parts) == (sign == "=")
    number = _typed(want)
    if not isinstance(number, float):
        raise ConfigError(f"{key}{sign}{want}: {sign} compares numbers, got {want!r}")
    if isinstance(have, bool) or not isinstance(have, int | float):
        return False
    return {">": have > number, "<": have < number, ">=": have >= number, "<=": have <= number}[sign]


def _typed(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return f"{value:.12g}"
