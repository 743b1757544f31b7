"""JSON of a folder as values that one can rely on: not too many, too deep or too long, finite, and fit to be shown."""

import json
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from offbeat.core.errors import StoreError
from offbeat.core.legible import legible
from offbeat.folders.limits import MOST_COUNT, MOST_DEPTH, MOST_JSON, MOST_NAME, MOST_TEXT, MOST_VALUES
from offbeat.folders.opening import read_bytes

T = TypeVar("T")


def read_json(folder: Path, name: str, kind: type[T]) -> T:
    """The file as a value of that type; FileNotFoundError where there is none, else a StoreError that says what."""
    return parsed(read_bytes(folder, name, MOST_JSON), folder / name, kind)


def parsed(data: bytes, path: Path, kind: type[T]) -> T:
    """The same from the bytes of the file."""
    try:
        if data.count(b",") > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES:,} values")
        return msgspec.convert(checked(json.loads(data, parse_constant=lambda name: None)), kind)
    except UnicodeDecodeError:
        raise StoreError(f"{path} cannot be read: it is not text") from None
    except json.JSONDecodeError as e:
        raise StoreError(f"{path} cannot be read: it is not JSON (line {e.lineno})") from None
    except RecursionError:
        raise StoreError(f"{path} cannot be read: it is nested too deeply") from None
    except (ValueError, msgspec.ValidationError) as e:
        raise StoreError(f"{path} cannot be read: {legible(e)}") from None


def checked(value: Any, depth: int = 0) -> Any:
    """The same values; control characters in texts are written out. ValueError where something is out of bounds."""
    if isinstance(value, str):
        if len(value) > MOST_TEXT:
            raise ValueError(f"a text of {len(value):,} letters, more than {MOST_TEXT:,}")
        return legible(value)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a number that is not finite")
    if isinstance(value, int) and abs(value) > MOST_COUNT:
        raise ValueError("a number of more than 64 bits")
    if depth >= MOST_DEPTH and isinstance(value, list | dict):
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
    if isinstance(value, list):
        return [checked(v, depth + 1) for v in value]
    if isinstance(value, dict):
        return {_key(k): checked(v, depth + 1) for k, v in value.items()}
    return value


def _key(name: str) -> str:
    if len(name) > MOST_NAME:
        raise ValueError(f"a name of {len(name):,} letters, more than {MOST_NAME:,}")
    return legible(name)
