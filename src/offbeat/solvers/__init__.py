"""Solvers: one rule a file. The table below is all there is to registering one."""

from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from typing import Any

from offbeat.core.errors import ConfigError, unknown

SOLVERS: Mapping[str, str] = {
    "plain": "offbeat.solvers.plain:Plain",
    "sync": "offbeat.solvers.sync:Sync",
    "asgd": "offbeat.solvers.asgd:ASGD",
    "constant-delay": "offbeat.solvers.constant_delay:ConstantDelay",
}


def solver_class(name: str) -> Any:
    """The class of a named solver, or of `package.module:Class`."""
    if ":" in name:
        return load_object(name, "solver")
    if name not in SOLVERS:
        raise unknown("solver", name, SOLVERS)
    return load_object(SOLVERS[name], "solver")


def hyper_parameters(kind: Any) -> dict[str, Any]:
    """A solver's own hyper-parameters and their defaults (the optimizer is configured by itself)."""
    return {n: p.default for n, p in signature(kind).parameters.items() if n != "opt"}


def build(name: str, opt: Any, options: Mapping[str, Any]) -> Any:
    """A solver by name; a wrong hyper-parameter lists the right ones."""
    kind = solver_class(name)
    known = hyper_parameters(kind)
    for key in options:
        if key not in known:
            if not known:
                raise ConfigError(f"solver {name!r} has no hyper-parameters, got {key!r}")
            raise unknown(f"hyper-parameter of solver {name!r}", key, known)
    return kind(opt, **options)


def load_object(path: str, what: str) -> Any:
    """`package.module:name`, imported."""
    module, _, attribute = path.partition(":")
    try:
        found = import_module(module)
    except ImportError as e:
        raise ConfigError(f"{what} {path!r} cannot be imported: {e}") from None
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = [n for n in vars(found) if not n.startswith("_")]
            raise unknown(f"name in {module}", attribute, names) from None
    return found
