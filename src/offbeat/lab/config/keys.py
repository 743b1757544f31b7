"""Dotted keys: the same in TOML files, in `--set` and in Python."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import shown
from offbeat.engines.cluster import SECTIONS, Cluster
from offbeat.lab.config.config import Config

LENGTHS = ("epochs", "samples", "updates", "seconds")
"""The units in which a budget can be given; one at a time."""
NAMED = ("task", "solver", "optimizer")
"""Sections whose further keys belong to what their `name` chooses; a bare name stands for the whole section."""


_DEPTH = 8
"""Levels of a configuration: sections, tables in them, and lists."""


def put(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets a dotted key, `optimizer.lr`."""
    if not isinstance(key, str):
        raise ConfigError(f"keys must be text, got {shown(key)}")
    at = values
    *path, last = key.split(".", maxsplit=_DEPTH)
    for part in path:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            raise ConfigError(f"key {shown(key)} goes through {part!r}, which is a value and not a section")
    # A new length of the run replaces the old one, whatever its unit.
    if path == ["budget"] and last in LENGTHS:
        for unit in LENGTHS:
            at.pop(unit, None)
    at[last] = value


def merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Sets every key of `values`: dotted ones, sections, and bare names for task, solver or optimizer."""
    for key, value in values.items():
        if key in NAMED and isinstance(value, str):
            put(into, f"{key}.name", value)
        elif isinstance(value, Mapping) and "." not in key:
            for field, inner in value.items():
                put(into, f"{key}.{field}", inner)
        else:
            put(into, key, value)


def known_keys() -> list[str]:
    """All dotted keys that do not depend on a choice of task, solver or optimizer."""
    return sorted(_keys(Config))


def _keys(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")
        elif name == "cluster":
            yield from (f"cluster.{k}" for k in cluster_keys())
        else:
            yield prefix + name


def cluster_keys() -> Iterator[str]:
    """Those of a cluster, with the keys of its own sections: `server.bandwidth`."""
    for name in Cluster.__dataclass_fields__:
        yield from (f"{name}.{key}" for key in SECTIONS[name]) if name in SECTIONS else (name,)


def check_keys(values: Mapping[str, Any]) -> None:
    """Unknown keys first, so that a typing error is named before what follows from it."""
    known = known_keys()
    sections = {k.split(".")[0] for k in known}
    for name, section in values.items():
        if name not in sections:
            raise unknown("key", name, sections)
        if not isinstance(section, dict):
            if any(k.startswith(f"{name}.") for k in known):
                raise ConfigError(f"{name} must be a section with keys, got {shown(section)}")
            continue
        if name in NAMED:
            continue
        for field in section:
            if f"{name}.{field}" not in known and not (name == "cluster" and field in SECTIONS):
                raise unknown("key", f"{name}.{field}", known)


def check_plain(values: Any, key: str = "", depth: int = 0) -> None:
    """Refuses what no file would hold: deep nesting, keys that are not text, gaps in lists, giant numbers."""
    if isinstance(values, Mapping):
        if depth == _DEPTH:
            raise ConfigError(f"{shown(key)} is nested too deeply: {_DEPTH} levels are enough")
        for name, value in values.items():
            if not isinstance(name, str):
                raise ConfigError(f"keys must be text, got {shown(name)}{f' in {key}' if key else ''}")
            check_plain(value, f"{key}.{name}" if key else name, depth + 1)
    elif isinstance(values, list | tuple):
        if depth == _DEPTH:
            raise ConfigError(f"{shown(key)} is nested too deeply: {_DEPTH} levels are enough")
        for value in values:
            if value is None:
                raise ConfigError(f"{key} must have a value at every place of its list, got {shown(values)}")
            check_plain(value, key, depth + 1)
    elif isinstance(values, int) and abs(values) >= 2**1000:
        raise ConfigError(f"{key} is a number of {values.bit_length():,} bits, which no setting can hold")


def combinations(grid: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """The cartesian product of a grid of dotted keys, first key slowest."""
    cells: list[dict[str, Any]] = [{}]
    for key, values in grid.items():
        cells = [{**cell, key: value} for cell in cells for value in values]
    return cells
