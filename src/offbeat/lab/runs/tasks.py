"""From a name to a task: made here, or made anew in another process."""

import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from offbeat import solvers
from offbeat.core.bits import usual_torch
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.task import Task
from offbeat.core.typed import check_options
from offbeat.data import holdout
from offbeat.lab.config import Config, given_as_objects, make
from offbeat.lab.config.code import load_code
from offbeat.tasks import TASKS
from offbeat.tasks.calling import refuse_gpu
from offbeat.tasks.module import ModuleTask


def task_of(config: Config) -> Task:
    """The task of a configuration, with what is held out of its training set."""
    return hold_out(build_task(config.task.name, config.task.options, config.batch), config)


def remake(values: Mapping[str, Any]) -> Task:
    """The same from plain values, in another process."""
    return task_of(Config.model_validate(values))


def recorded_task(recorded: Mapping[str, Any]) -> Task:
    """The task that run.json names, as it was before anything was held out of it."""
    if "task" in given_as_objects(recorded):
        raise ConfigError("its task was given as a Python object: hand it over, Run.load(path, task=...)")
    config = make({k: recorded[k] for k in ("task", "cluster", "data", "scale") if k in recorded})
    return build_task(config.task.name, config.task.options, config.batch)


def hold_out(task: Task, config: Config) -> Task:
    """The task with its validation set, if one is asked for: then the test set is looked at once, at the end."""
    validation, folds, fold = config.data.validation, config.data.folds, config.data.fold
    if validation is None and folds is None:
        return task
    if task.size is None or not hasattr(task, "hold_out"):
        raise ConfigError(f"task {task.name!r} cannot hold out a validation set: only models with a dataset can")
    labels = getattr(task, "labels", None)
    if folds is not None:
        out = holdout.folds(task.size, folds, config.seed, labels)[fold or 0]
    else:
        assert validation is not None
        out = holdout.share(task.size, validation, config.seed, labels)
    made: Task = task.hold_out(out)
    return made


def build_task(name: str, options: Mapping[str, Any], batch: int) -> Task:
    """A task by name, or made by `package.module:factory`, which returns a Task or (model, loss, train[, test])."""
    if name in TASKS:
        factory = solvers.load_object(TASKS[name].path, "task")
    elif ":" in name:
        factory = load_code(name, "object")
    else:
        raise unknown("task", name, TASKS)
    known = inspect.signature(factory).parameters
    given = dict(options)
    if "data" in given and "data" not in known:
        raise ConfigError(f"task {name!r} brings its own data, got data={given['data']!r}: word2vec takes another")
    settable = [k for k in known if k != "batch"]  # which is data.batch
    for key in given:
        if key == "batch" or (key not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values())):
            if not settable:
                raise ConfigError(f"task {name!r} has no options, got {key!r}")
            raise unknown(f"option of task {name!r}", key, settable)
    if name in TASKS:
        check_options(factory, given, "task")
    if name == "quadratic":
        given["batch"] = batch  # noise is that of a mean over the batch
    try:
        with refuse_gpu(), usual_torch() if name in TASKS else nullcontext():
            made = factory(**given)
    except TypeError as e:
        raise ConfigError(f"task {name!r} cannot be made: {e}") from None
    return as_task(made, name)


def as_task(made: Any, name: str) -> Task:
    """A task as it is, or one around (model, loss, train[, test])."""
    if isinstance(made, tuple) and len(made) in (3, 4):
        return ModuleTask(*made, name=name)
    if not isinstance(made, Task):
        raise ConfigError(f"{name!r} must give a Task or (model, loss, train[, test]), got {type(made).__name__}")
    return made
