"""A solver under trial: its options, and what may be expected of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offbeat import solvers
from offbeat.core.solver import Solver, World
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory

SGD: Mapping[str, Any] = {"name": "sgd", "lr": 0.05}
EVENTS = 120
"""Length of a trial, in events of the simulator."""


class Broken(Exception):  # noqa: N818 - a promise is broken; nothing went wrong here
    """The solver does not keep this part of the contract."""


@dataclass(frozen=True)
class Case:
    """A solver with options, and what may be expected of it beyond what it declares itself."""

    solver: str
    options: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 3
    optimizer: Mapping[str, Any] = field(default_factory=lambda: SGD)
    alone: Mapping[str, Any] | None = None
    """The torch optimizer that it is with one worker, bit for bit; None where there is none."""
    events: int = EVENTS

    def __str__(self) -> str:
        parts = [f"{k}={v}" for k, v in self.options.items()]
        parts += [f"{k}={v}" for k, v in self.optimizer.items()] if self.optimizer is not SGD else []
        return " ".join([self.solver, *parts])

    def make(self) -> Solver:
        made: Solver = solvers.build(self.solver, optimizer_factory(**self.optimizer), self.options)
        return made

    @property
    def joins(self) -> bool:
        """Workers may join later; where there is no server to ask, they cannot."""
        return self.make().takes_in

    @property
    def fixed(self) -> bool:
        """There cannot be one worker more: it is a rule for one, or its options name each of them."""
        return self.make().why_not(World(self.workers + 1, Bowl.layout, tuple(range(self.workers + 1)))) is not None
