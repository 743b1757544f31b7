"""Settings that would be ignored: refused, because whoever sets something means it.

A cluster is the exception: it is the machines, whoever uses them, so that solvers can be compared on one.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from offbeat.core.errors import ConfigError
from offbeat.core.task import Task
from offbeat.core.units import shown
from offbeat.lab.config.sections import RayConfig

if TYPE_CHECKING:
    from offbeat.lab.config.config import Config


class Ignored(NamedTuple):
    """When a setting has no effect, and how that is said."""

    when: "Callable[[Config], bool]"
    why: str


_REAL = ("local", "ray", "debug")
IGNORED: Mapping[str, Ignored] = {
    "schedule.power": Ignored(lambda c: c.schedule.kind != "polynomial", "unless schedule.kind is 'polynomial'"),
    "schedule.milestones": Ignored(lambda c: c.schedule.kind != "multistep", "unless schedule.kind is 'multistep'"),
    "schedule.gamma": Ignored(
        lambda c: c.schedule.kind not in ("multistep", "exponential"),
        "unless schedule.kind is 'multistep' or 'exponential'",
    ),
    "schedule.floor": Ignored(lambda c: c.schedule.kind != "cosine", "unless schedule.kind is 'cosine'"),
    "schedule.over": Ignored(
        lambda c: c.schedule.kind not in ("polynomial", "cosine"), "unless schedule.kind is 'polynomial' or 'cosine'"
    ),
    "scale.workers": Ignored(lambda c: c.scale.lr == c.scale.batch == "none", "without scale.lr or scale.batch"),
    "scale.batch": Ignored(lambda c: c.data.global_batch is not None, "with data.global_batch"),
    "local.on_loss": Ignored(lambda c: c.engine not in _REAL, "unless engine is 'local', 'ray' or 'debug'"),
    "local.patience": Ignored(lambda c: c.engine not in ("local", "ray"), "unless engine is 'local' or 'ray'"),
    "local.restarts": Ignored(lambda c: c.engine not in _REAL, "unless engine is 'local', 'ray' or 'debug'"),
    "local.start": Ignored(lambda c: c.engine not in _REAL, "unless engine is 'local', 'ray' or 'debug'"),
    "local.floor": Ignored(lambda c: c.engine not in _REAL, "unless engine is 'local', 'ray' or 'debug'"),
    **{
        f"ray.{name}": Ignored(lambda c: c.engine != "ray", "unless engine is 'ray'") for name in RayConfig.model_fields
    },
}
WITHOUT_DATA = ("data.partition", "data.sampling", "record.saves_per_epoch")
"""What only a task with a training set can use."""


def refuse_ignored(config: "Config") -> None:
    """Refuses what is set and cannot have an effect beside the other settings."""
    for key, (when, why) in IGNORED.items():
        if when(config):
            _refuse_set(config, key, why)


def refuse_ignored_with(task: Task, config: "Config") -> None:
    """The same for what depends on the task."""
    if task.size is None:
        for key in WITHOUT_DATA:
            _refuse_set(config, key, f"on task {task.name!r}, which has no training set")


def _refuse_set(config: "Config", key: str, why: str) -> None:
    name, _, field = key.partition(".")
    section: Any = getattr(config, name)
    value = getattr(section, field)
    if value != type(section).model_fields[field].default:
        raise ConfigError(f"{key} has no effect {why}: leave it out, got {shown(value)}")
