"""Callbacks: what is called, and what is refused because it never would be."""

from collections.abc import Callable, Iterable
from inspect import isroutine
from typing import Any

from offbeat.core.bits import hold_still
from offbeat.core.errors import ConfigError, unknown
from offbeat.engines.pool import Pool

HOOKS = ("on_apply", "on_evaluation")
_OBJECT = "a callback must be an object with on_apply(row), on_evaluation(metrics) or both"


def guarded(hook: Callable[[Any], object], pool: Pool) -> Callable[[Any], None]:
    """The hook; what it changes of torch's global state is as before when the run goes on.

    What other threads computed while it was changed is computed again.
    """

    def call(row: Any) -> None:
        hook(row)
        if hold_still():
            pool.compute_again()

    return call


def check_hooks(callbacks: Iterable[Any]) -> None:
    """Refuses functions, classes, and objects whose hooks are misspelt or missing."""
    for callback in callbacks:
        if isroutine(callback) or isinstance(callback, type):
            kind = "a class" if isinstance(callback, type) else "a function"
            raise ConfigError(f"{_OBJECT}, got {kind}: {callback.__name__}")
        name = type(callback).__name__
        hooks = [a for a in dir(callback) if a.startswith("on_")]
        for hook in hooks:
            if hook not in HOOKS:
                raise unknown(f"hook of callback {name}", hook, HOOKS)
        if not hooks:
            raise ConfigError(f"{_OBJECT}, got {name}")
