"""The format of run folders: who writes it and who reads it must mean the same."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

FORMAT = 1


def json_safe(value: Any) -> Any:
    """JSON knows no NaN: what is not a number is null."""
    if isinstance(value, Mapping):
        return {k: json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(v) for v in value]
    return None if isinstance(value, float) and not isfinite(value) else value
