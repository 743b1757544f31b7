"""What an engine offers to those who look on, and what it asks of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from offbeat.core.effects import Applied
from offbeat.core.solver import Solver
from offbeat.core.task import Point, Task
from offbeat.engines.pool import Pool


class Watcher(Protocol):
    """Who looks on: counts down to marks, evaluates, saves, stops. Never changes the course of a run."""

    def mark(self) -> bool:
        """The samples or updates asked for are reached; True ends the run."""

    def tick(self) -> bool:
        """Between two events; True ends the run."""

    def suspicious(self, loss: float) -> bool:
        """A loss that is not finite, or beyond `loss_limit`; True ends the run."""

    def show(self) -> None:
        """Somebody is waited for (`Engine.waiting`), and nothing else is to be done."""


class ToTheMark:
    """Lets an engine run to the first mark that was set, and looks at nothing."""

    def mark(self) -> bool:
        return True

    def tick(self) -> bool:
        return False

    def suspicious(self, loss: float) -> bool:
        return False

    def show(self) -> None:
        pass


class Engine(Protocol):
    """A run in progress, whatever its clock."""

    clock: ClassVar[str]
    """`virtual` or `wall`."""
    task: Task
    solver: Solver

    @property
    def pool(self) -> Pool:
        """For evaluations: `pool.map`."""

    @property
    def now(self) -> float: ...

    @property
    def updates(self) -> int: ...

    @property
    def samples(self) -> int: ...

    @property
    def samples_applied(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def served(self) -> float:
        """Seconds that the server was busy."""

    @property
    def queued(self) -> float:
        """Seconds that messages waited for it, summed."""

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The trace so far; the watcher may clear it when it has written it."""

    @property
    def journal(self) -> list[tuple[float, str, int, int]] | None:
        """What a replay follows, on engines that do not choose their order: (time, what, worker, number)."""

    next_samples: float
    next_updates: float
    """The watcher is called at these marks, which it sets."""
    deadline: float
    loss_limit: float

    @property
    def suspect(self) -> str:
        """Whose loss is suspicious: worker and batch, in words; nothing where that is not known."""

    @property
    def waiting(self) -> str:
        """Who has been waited for, and for how long, in words; nothing while all is well."""

    @property
    def incidents(self) -> Sequence[str]:
        """What went wrong on the way, a line each; where nothing real runs, nothing does."""

    @property
    def machines(self) -> Sequence[str]:
        """Of each worker, the machine that it was on last; empty where there is only one."""

    @property
    def lost_updates(self) -> int:
        """Updates that went with a server; their rows in `rows` say so."""

    @property
    def revisions(self) -> int:
        """How often rows in `rows` were changed or taken away, with a server: whoever counts them begins anew."""

    @property
    def point(self) -> Point:
        """The point that is evaluated and saved."""

    @property
    def lr(self) -> float | None:
        """The learning rate in force."""

    @property
    def lost_share(self) -> float | None:
        """Of the additions to a shared vector, how much was undone by others; None where it is not known."""

    @property
    def optimizer_options(self) -> Mapping[str, Any] | None:
        """The options of the torch optimizer at work, if there is one."""

    def run(self, watcher: Watcher) -> str:
        """Until the watcher, the deadline or the end of work; says which: "watcher", "seconds", "idle"."""

    def finish(self) -> None:
        """Closes the books: one row for every gradient still in flight."""

    def close(self) -> None:
        """Gives back threads, processes and memory."""

    def show_applied(self, look: Callable[[Applied], None]) -> bool:
        """Has every gradient shown before its update; False where that cannot be, because the clock does not stop."""

    def breakdown(self) -> list[dict[str, float]]:
        """Seconds present of each worker, and how they were spent."""

    def save(self, tensors: dict[str, Any]) -> Any:
        """Everything the run needs to go on, as JSON and tensors."""

    def restore(self, encoded: Any, tensors: Mapping[str, Any]) -> None:
        """The inverse of `save`."""
