"""Plain values against the types that a function's signature names: refused in one line, with the key."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from math import inf, isfinite
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import shown

MOST = 1_000_000
"""The largest whole number that an option takes: what it counts takes time or memory."""

_PLAIN = (bool, int, float, str, NoneType)
_WORDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}


def is_finite(value: Any) -> bool:
    """Whether it is a number that a float can hold; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def check_options(function: Callable[..., Any], options: Mapping[str, Any], section: str, *, most: float = inf) -> None:
    """Refuses options of other types than the function's signature has; what it says nothing plain of may be anything.

    `most` bounds whole numbers.
    """
    kinds = _plain_kinds(function)
    for name, value in options.items():
        if name in kinds:
            check_typed(value, kinds[name], f"{section}.{name}", most)


def check_typed(value: Any, kind: Any, what: str, most: float = inf) -> None:
    """Refuses a value that is not of this type, or holds a number that is not finite, or too large a whole one."""
    try:
        msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, TypeError, OverflowError):
        if choices := [c for part in _parts(kind) if get_origin(part) is Literal for c in get_args(part)]:
            raise unknown(what, str(value), choices) from None
        raise ConfigError(f"{what} must be {in_words(kind)}, got {shown(value)}") from None
    for number in value if isinstance(value, list | tuple) else [value]:
        if isinstance(number, int | float) and not isinstance(number, bool) and not is_finite(number):
            raise ConfigError(f"{what} must be {in_words(kind)}, got {shown(value)}")
        if isinstance(number, int) and abs(number) > most and float not in _parts(kind):
            raise ConfigError(f"{what} must be {in_words(kind)} of at most {most:,}, got {shown(value)}")


def in_words(kind: Any) -> str:
    """A type as people say it: `a finite number`, `true or false`, `a list of 2 numbers`."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(in_words(k) for k in get_args(kind) if k is not NoneType)
    if get_origin(kind) is tuple and Ellipsis not in get_args(kind):
        return f"a list of {len(get_args(kind))} numbers"
    return _WORDS.get(kind, "a list of numbers")


@cache
def _plain_kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters that take plain values, and their types."""
    try:
        hints = get_type_hints(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    except (NameError, TypeError):  # somebody's own annotations, which only a type checker understands
        return {}
    found = {name: _plain(hints.get(name)) for name in inspect.signature(function).parameters}
    return {name: kind for name, kind in found.items() if kind is not None}


def _plain(kind: Any) -> Any:
    """The part of a type that a file can hold; None where there is none. Of `float | Tensor` that is `float`."""
    if kind in _PLAIN or get_origin(kind) is Literal:
        return kind
    inner = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        kept = [k for k in map(_plain, inner) if k is not None]
        return reduce(or_, kept) if kept and kept != [NoneType] else None
    if get_origin(kind) in (tuple, list, Sequence):
        items = [k if k is Ellipsis else _plain(k) for k in inner]
        return None if None in items else get_origin(kind)[tuple(items)]
    return None


def _parts(kind: Any) -> set[Any]:
    """The types that a type is made of."""
    inner = get_args(kind) if get_origin(kind) is not Literal else ()
    return {kind}.union(*map(_parts, inner))
