"""What Python gave as an object where a configuration has a name, and what is recorded of it instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.lab.config.code import typed_in
from offbeat.lab.config.config import Config
from offbeat.lab.config.toml import to_toml
from offbeat.solvers import OF_SERVERS, hyper_parameters

_EPOCHS, _UPDATES = 5, 500
_SOLVERS_OWN = ("solver", "optimizer", "schedule")
"""The sections that a solver given as an object has in itself."""


@dataclass(frozen=True)
class Objects:
    """A task, a solver, both or neither; a run that has one can be told from its folder, but not run again."""

    task: Task | None = None
    solver: Solver | None = None
    """With an optimizer of its own."""
    rule: type[Solver] | None = None
    """A solver's class: the configuration has its optimizer and its options."""

    def __bool__(self) -> bool:
        return not (self.task is None and self.solver is None and self.rule is None)

    @property
    def kind(self) -> Any:
        """The solver, or its class; None where the configuration names it."""
        return self.rule if self.solver is None else self.solver

    @property
    def tell_all(self) -> bool:
        """Whether what they tell of themselves is all there is to know: then the same words are the same run."""
        known = self.task is None or self.task.name == "quadratic" or getattr(self.task, "fingerprint", None)
        named = self.solver is None or "<" not in _name(getattr(self.solver, "opt", None))
        return bool(known) and named and not any(typed_in(code) for code in self.code())

    def code(self) -> list[Any]:
        """The functions and classes that they are made of, as far as can be seen."""
        found: list[Any] = []
        if self.task is not None:
            parts = [getattr(self.task, name, None) for name in ("_make", "loss", "collate")]
            found += [type(self.task), *(c if hasattr(c, "__name__") else type(c) for c in parts)]
        if self.solver is not None:
            found += [type(self.solver), getattr(self.solver, "opt", None)]
        return found if self.rule is None else [*found, self.rule]

    def check_settings(self, values: Mapping[str, Any]) -> None:
        """Refuses settings that would have to change an object."""
        own = {"task": self.task} | dict.fromkeys(_SOLVERS_OWN, self.solver)
        for section, given in own.items():
            if given is not None and (keys := values.get(section)):
                key = f"{section}.{next(iter(keys))}"
                what = "task" if section == "task" else "solver"
                raise ConfigError(f"{key} cannot be set: the {what} was given as an object, which has its own")

    def names(self) -> dict[str, str]:
        """The names under which a configuration knows them, by key."""
        task = {} if self.task is None else {"task.name": self.task.name}
        return task if self.kind is None else {**task, "solver.name": solver_name(self.kind)}

    def suited(self) -> dict[str, Any]:
        """The settings that suit the task, by dotted key."""
        assert self.task is not None
        sized = self.task.size is not None
        usual = {"budget.epochs": _EPOCHS} if sized else {"budget.updates": _UPDATES, "evaluate.every": "10updates"}
        return {**usual, **getattr(self.task, "defaults", {})}

    def recorded(self, config: Config) -> dict[str, Any]:
        """The configuration for run.json: what can be said by name, and what the objects tell of themselves."""
        values = config.plain()
        if self.task is not None:
            about = {k: v for k, v in self.task.describe().items() if k != "randomness"}  # found out on the way
            values["task"] = {"name": self.task.name, "fingerprint": getattr(self.task, "fingerprint", None), **about}
        if self.solver is not None:
            del values["schedule"]
            values["solver"] = {"name": config.solver.name, **_options(self.solver)}
            values["optimizer"] = _optimizer(getattr(self.solver, "opt", None))
        if self.rule is not None:
            values["objects"] = [*(["task"] if self.task is not None else []), "solver"]
        return {**values, "from": "python"}


NONE = Objects()


def given_as_objects(recorded: Mapping[str, Any]) -> list[str]:
    """Which of task and solver a recorded configuration knows as Python objects, and cannot bring back."""
    if isinstance(named := recorded.get("objects"), list):  # of a class, and as `show --toml` prints them all
        return [str(name) for name in named]
    if recorded.get("from") != "python":
        return []
    task = ["task"] if "fingerprint" in recorded.get("task", {}) else []
    return task + (["solver"] if "schedule" not in recorded else [])


def say_objects(names: Sequence[str]) -> str:
    """`the task and the solver were given as Python objects`."""
    subject = " and ".join(f"the {name}" for name in names)
    return f"{subject} {'were given as Python objects' if len(names) > 1 else 'was given as a Python object'}"


def recorded_toml(recorded: Mapping[str, Any]) -> str:
    """A recorded configuration, as `run` takes it back; where there are objects in it, it says so first."""
    named = {k: v for k, v in recorded.items() if k != "from"}
    if not (objects := given_as_objects(recorded)):
        return to_toml(named)
    said = say_objects(objects)
    about = f"# {said[0].upper()}{said[1:]}: what is said of it here is for reading, and `run` refuses it.\n\n"
    return about + to_toml({"objects": objects, **named})


def solver_name(solver: Solver | type[Solver]) -> str:
    """The name that `offbeat.solver` made it by, or that of its class."""
    kind = solver if isinstance(solver, type) else type(solver)
    return str(getattr(solver, "label", kind.__name__))


def _options(solver: Solver) -> dict[str, str]:
    """Every option as it would be typed, and those of all solvers where they are set."""
    found = {k: repr(getattr(solver, k, None)) for k in hyper_parameters(type(solver))}
    for name in (*OF_SERVERS, "schedule", "multipliers"):
        usual = getattr(type(solver), name, None)
        if getattr(solver, name, usual) != usual:
            found[name] = repr(getattr(solver, name))
    return found


def _optimizer(factory: Any) -> dict[str, Any]:
    """The name of what a factory makes, and the options that it holds where it is a partial."""
    options = getattr(factory, "keywords", {})
    plain = {k: v if isinstance(v, str | int | float | bool) else repr(v) for k, v in options.items()}
    return {"name": _name(factory).rpartition(".")[2].lower(), **plain}


def _name(factory: Any) -> str:
    """`SGD`; of a lambda or a function within another one, with a "<"."""
    kind = getattr(factory, "func", factory)
    return str(getattr(kind, "__qualname__", kind))
