"""Solvers: one rule a file. The table below is all there is to registering one.

What rules share: `parameter_server/` (gradients go to a server), `local_steps.py` (differences go there), `replica.py`
(workers step by themselves), `elastic.py` (and are tied to a centre), `momentum.py`, and `options.py`, which checks.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.typed import MOST, check_options, is_finite
from offbeat.core.units import shown

SOLVERS: Mapping[str, str] = {
    "plain": "offbeat.solvers.plain:Plain",
    "sync": "offbeat.solvers.sync:Sync",
    "allreduce": "offbeat.solvers.allreduce:AllReduceSGD",
    "hierarchical": "offbeat.solvers.hierarchical:Hierarchical",
    "asgd": "offbeat.solvers.asgd:ASGD",
    "constant-delay": "offbeat.solvers.constant_delay:ConstantDelay",
    "dc-asgd": "offbeat.solvers.dc_asgd:DCASGD",
    "async-momentum": "offbeat.solvers.async_momentum:AsyncMomentum",
    "multi-asgd": "offbeat.solvers.multi_asgd:MultiASGD",
    "worker-momentum": "offbeat.solvers.worker_momentum:WorkerMomentum",
    "backup": "offbeat.solvers.backup:Backup",
    "phased": "offbeat.solvers.phased:Phased",
    "ssp": "offbeat.solvers.ssp:SSP",
    "staleness-aware": "offbeat.solvers.staleness_aware:StalenessAware",
    "softsync": "offbeat.solvers.softsync:Softsync",
    "delay-adaptive": "offbeat.solvers.delay_adaptive:DelayAdaptive",
    "gap-aware": "offbeat.solvers.gap_aware:GapAware",
    "dana-zero": "offbeat.solvers.dana_zero:DanaZero",
    "dana-slim": "offbeat.solvers.dana_slim:DanaSlim",
    "ringmaster": "offbeat.solvers.ringmaster:Ringmaster",
    "rennala": "offbeat.solvers.rennala:Rennala",
    "ringleader": "offbeat.solvers.ringleader:Ringleader",
    "schedule-free": "offbeat.solvers.schedule_free:ScheduleFree",
    "compressed": "offbeat.solvers.compressed:Compressed",
    "easgd": "offbeat.solvers.easgd:EASGD",
    "ea-msgd": "offbeat.solvers.ea_msgd:EAMSGD",
    "ea-wild": "offbeat.solvers.ea_wild_groups:EAWildGroups",
    "hogwild": "offbeat.solvers.hogwild:Hogwild",
    "downpour": "offbeat.solvers.downpour:Downpour",
    "fedbuff": "offbeat.solvers.fedbuff:FedBuff",
    "async-diloco": "offbeat.solvers.async_diloco:AsyncDiLoCo",
    "all-to-all": "offbeat.solvers.all_to_all:AllToAll",
    "ad-psgd": "offbeat.solvers.ad_psgd:ADPSGD",
    "sgp": "offbeat.solvers.sgp:SGP",
    "local-sgd": "offbeat.solvers.local_sgd:LocalSGD",
    "slowmo": "offbeat.solvers.slowmo:SlowMo",
    "diloco": "offbeat.solvers.diloco:DiLoCo",
}


def solver_class(name: str) -> Any:
    """The class of a named solver, or of `package.module:Class`."""
    if ":" not in name:
        if name not in SOLVERS:
            raise unknown("solver", name, SOLVERS)
        return load_object(SOLVERS[name], "solver")
    return whole_class(load_object(name, "solver"), name)


def whole_class(kind: Any, name: str) -> Any:
    """A class of somebody's own, if it is that of a solver and lacks nothing."""
    from offbeat.core.solver import Solver

    if not (isinstance(kind, type) and issubclass(kind, Solver)):
        raise ConfigError(f"solver {name!r} must be a class derived from offbeat.core.solver.Solver, got {kind!r}")
    if missing := sorted(kind.__abstractmethods__):
        raise ConfigError(f"solver {name!r} lacks {', '.join(missing)}")
    return kind


OF_SERVERS = ("clip", "clip_at", "introduce", "overlap")
"""Options of every solver with a parameter server."""


def hyper_parameters(kind: Any) -> dict[str, Any]:
    """A solver's own hyper-parameters and their defaults (the optimizer is configured by itself)."""
    return {n: p.default for n, p in signature(kind).parameters.items() if n != "opt"}


def server_options(kind: Any) -> list[str]:
    """The options of servers that a solver has beside its own."""
    own = hyper_parameters(kind)
    return [k for k in OF_SERVERS if k not in own and hasattr(kind, k)]


def build(name: str, opt: Any, options: Mapping[str, Any], kind: Any = None) -> Any:
    """A solver by name, or of a class of that name; a wrong hyper-parameter lists the right ones."""
    from offbeat.solvers.options import without_effect

    kind = kind or solver_class(name)
    own = hyper_parameters(kind)
    extra = server_options(kind)
    for key in options:
        if key not in own and key not in extra:
            raise unknown(f"hyper-parameter of solver {name!r}", key, [*own, *extra])
    for key, default in own.items():
        if default is Parameter.empty and key not in options:
            raise ConfigError(f"solver {name!r} needs solver.{key}, which has no default")
    if "opt" not in signature(kind).parameters:
        raise ConfigError(f"solver {name!r} must take the optimizer's factory as its argument `opt`")
    check_options(kind, options, "solver", most=MOST)
    made = kind(opt, **{k: v for k, v in options.items() if k in own})
    for key in extra:
        if key in options:
            setattr(made, key, _of_servers(key, options[key]))
    if "clip_at" in extra and made.clip is None:
        without_effect("clip_at", made.clip_at, kind.clip_at, "without solver.clip")
    return made


def _of_servers(key: str, value: Any) -> Any:
    from offbeat.solvers.options import choice, flag

    if key == "clip_at":
        return choice("clip_at", value, ("worker", "server"))
    if key == "overlap":
        return flag("overlap", value)
    least = "above 0" if key == "clip" else "0 or more"
    if not is_finite(value) or value < 0 or (key == "clip" and value == 0):
        raise ConfigError(f"solver.{key} must be a finite number, {least}, got {shown(value)}")
    return float(value)


def stand_here() -> None:
    """Code of the user's own is looked for where one stands, too; last, so that no file there is taken for another."""
    with suppress(OSError):  # it may have been removed
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.append(os.getcwd())


def load_object(path: str, what: str) -> Any:
    """`package.module:name`, imported."""
    module, _, attribute = path.partition(":")
    if not module.startswith("offbeat."):
        stand_here()
    try:
        found = import_module(module)
    except ImportError as e:
        raise ConfigError(f"{what} {path!r} cannot be imported: {e}") from None
    except Exception as e:  # whatever somebody's module does when it is imported
        raise ConfigError(f"{what} {path!r} cannot be imported: {type(e).__name__}: {e}") from None
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = [n for n in vars(found) if not n.startswith("_")]
            raise unknown(f"name in {module}", attribute, names) from None
    return found
