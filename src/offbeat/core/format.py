"""The format of run folders: who writes it and who reads it must mean the same."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from offbeat.core.errors import StoreError

FORMAT = 1


def check_format(path: Path, found: object) -> None:
    """Refuses the folder of a newer offbeat, and what is no format at all."""
    if not isinstance(found, int):
        raise StoreError(f"{path / 'run.json'} is damaged: it does not say its format")
    if found > FORMAT:
        raise StoreError(f"{path} was written by a newer offbeat (format {found}, this one reads up to {FORMAT})")


def json_safe(value: Any) -> Any:
    """JSON knows no NaN: what is not a number is null."""
    if isinstance(value, Mapping):
        return {k: json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(v) for v in value]
    return None if isinstance(value, float) and not isfinite(value) else value
