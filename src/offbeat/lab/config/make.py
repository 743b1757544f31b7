"""The complete configuration of a run: what was given, over what suits its task."""

import importlib.util
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import shown
from offbeat.engines.cluster import Cluster
from offbeat.lab.config.code import load_code
from offbeat.lab.config.config import Config
from offbeat.lab.config.ignored import refuse_ignored
from offbeat.lab.config.keys import LENGTHS, check_keys, check_plain, known_keys, merge
from offbeat.lab.config.objects import NONE, Objects, given_as_objects, say_objects
from offbeat.solvers import SOLVERS, solver_class
from offbeat.tasks import TASKS, settings

WORKERS = 4
"""Where nobody says how many, and the method is not one for a single worker."""

EXTRAS = {"word2vec": ("word2vec", "numba")}
"""Tasks that need an extra of the package, and the module by which one sees whether it is there."""


def make(values: Mapping[str, Any], objects: Objects = NONE) -> Config:
    """The given values over the task's defaults; errors in one line each.

    `objects` are the task and the solver where Python gave them as objects; `values` then say nothing of them.
    """
    if objects_of := given_as_objects(values):
        raise ConfigError(f"{say_objects(objects_of)}, which no file can hold: run the script again")
    merged: dict[str, Any] = {}
    merge(merged, values)
    check_plain(merged)
    check_keys(merged)
    objects.check_settings(merged)
    suited = _suited(merged, objects)
    solver = _known_solver(merged) if objects.kind is None else None
    merge(merged, objects.names())
    for key, value in suited.items():
        section, _, field = key.partition(".")
        if section in ("optimizer", "schedule") and objects.solver is not None:
            continue
        given = merged.setdefault(section, {})
        if section == "optimizer" and field not in ("name", "lr", "multipliers"):
            # Momentum and the like are meant for the optimizer that the task would have.
            usual = suited.get("optimizer.name", "sgd")
            if given.get("name", usual) != usual:
                continue
        if section == "budget" and any(k in given for k in LENGTHS):
            continue
        if section == "data" and "global_batch" in given:
            continue
        if section == "schedule" and any(u in merged.get("budget", {}) for u in ("updates", "seconds")):
            continue  # it would have no length on the work clock
        given.setdefault(field, value)
    cluster = merged.setdefault("cluster", {})
    if "workers" not in cluster:
        kind: Any = objects.kind if solver is None else solver_class(solver)
        cluster["workers"] = 1 if kind.alone else WORKERS
    merged["cluster"] = Cluster.parse(**cluster).to_dict()
    try:
        config = Config.model_validate(merged)
    except ValidationError as e:
        raise ConfigError(_first(e)) from None
    config.batch  # noqa: B018  # raises if the global batch cannot be shared
    refuse_ignored(config)
    return config


def _suited(values: Mapping[str, Any], objects: Objects) -> Mapping[str, Any]:
    """The settings that suit the task, by dotted key."""
    if objects.task is not None:
        suited = objects.suited()
        if "until" in values.get("budget", {}):
            suited = {k: v for k, v in suited.items() if not k.startswith("budget.")}  # the target is what ends it
        return suited
    name = values.get("task", {}).get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a run needs a task; known: {', '.join(sorted(TASKS))}, or package.module:factory")
    if name in TASKS:
        _check_extra(name)
        return settings(name, values["task"])
    if ":" not in name:
        raise unknown("task", name, TASKS)
    return getattr(load_code(name, "task"), "defaults", {"budget.epochs": 5})


def _check_extra(task: str) -> None:
    """What a task needs beyond the package itself, named before anything runs."""
    extra, module = EXTRAS.get(task, (None, ""))
    if extra is not None and importlib.util.find_spec(module) is None:
        raise ConfigError(f"task {task!r} needs {module}: pip install 'offbeat[{extra}]'")


def _known_solver(values: Mapping[str, Any]) -> str:
    name = values.get("solver", {}).get("name", "asgd")
    if not isinstance(name, str) or (name not in SOLVERS and ":" not in name):
        raise unknown("solver", str(name), SOLVERS)
    return name


def _first(error: ValidationError) -> str:
    """The first of pydantic's complaints, as one line: what, allowed, got."""
    e = error.errors()[0]
    key = ".".join(str(part) for part in e["loc"])
    message = e["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if e["type"] == "extra_forbidden":
        return str(unknown("key", key, known_keys()))
    if isinstance(e.get("input"), dict | BaseModel):
        return f"{key}: {message}" if key else message
    must = "" if message.startswith("must") else "must be "
    return f"{key} {must}{message}, got {shown(e['input'])}"
