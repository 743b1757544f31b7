"""A grid as one types it: `--grid optimizer.lr=0.01,0.1 --grid cluster.workers=2,8`."""

from collections.abc import Iterable, Iterator
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.lab.config.toml import parse_value

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "\"'"


def parse_grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Lists of values by key, in the order in which they were typed; values are those of `--set`."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        parts = list(split_values(values))
        if not equals or not key or not all(map(str.strip, parts)):
            raise ConfigError(f"--grid takes key=values, such as optimizer.lr=0.01,0.1, got {text!r}")
        if key in grid:
            raise ConfigError(f"--grid {key} is there twice: give all its values at once, with commas between")
        grid[key] = [parse_value(part, f"--grid {key}") for part in parts]
    return grid


def split_values(text: str) -> Iterator[str]:
    """The parts between commas; those within brackets or quotes belong to a value: `normal(10ms, 1ms)` is one."""
    start, closing, quote = 0, "", ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter in _PAIRS:
            closing += _PAIRS[letter]
        elif closing and letter == closing[-1]:
            closing = closing[:-1]
        elif letter == "," and not closing:
            yield text[start:at]
            start = at + 1
    yield text[start:]
