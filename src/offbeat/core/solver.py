"""A solver: the rule, written once, that every engine runs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import Applied, Call, Grad, Gradient, Received, ServerEffect, Stepped, WorkerEffect
from offbeat.core.layout import Layout

Round = Generator[WorkerEffect, Any, None]


@dataclass(frozen=True, slots=True)
class World:
    """What a rule may know of its surroundings."""

    workers: int
    layout: Layout
    present: tuple[int, ...]
    """The workers that are there at the start."""
    batch: int = 1
    samples_per_epoch: int | None = None
    seed: int = 0
    """For choices of topology, drawn through `core.seeds` with the stream "topology"."""
    joining: tuple[int, ...] = ()
    """The workers that appear later, for the first time or again."""


class Solver(ABC):
    """What a worker does in one round, and what the server does with a message.

    A rule sees versions and a work clock (samples), never time, threads, devices or global randomness. All state that
    lasts lives in the two state records; tensors in them are replaced, never mutated. A round holds at most one `Grad`.
    The one thing that may mutate, a torch optimizer, steps last in its round: a round may be run again from its start.
    """

    asks: ClassVar[frozenset[type]] = frozenset({Grad, Call})
    """The effects its rounds use; an engine that lacks one refuses the solver before anything starts."""
    records: ClassVar[tuple[type, ...]] = ()
    """Classes of its states and messages, for checkpoints."""
    schedule: Callable[[float], float] | None = None
    """Factor of the learning rate over the work clock (samples processed by everybody)."""
    multipliers: Mapping[str, Mapping[Any, float]] | None = None
    """Factors of learning rate and weight decay by pattern of segment names."""

    @property
    def answers_at_once(self) -> bool:
        """Whether the server uses every gradient on arrival and answers its sender, and no other, at once.

        Then its timing is known without running it, whatever it makes of the gradient.
        """
        return False

    def rate(self, work: float) -> float:
        """The schedule's factor at this moment of the work clock."""
        return 1.0 if self.schedule is None else self.schedule(work)

    @abstractmethod
    def init_server(self, x0: Any, world: World) -> Any:
        """The server's state at version 0."""

    @abstractmethod
    def init_worker(self, rank: int, x0: Any, world: World) -> Any:
        """A worker's state. `x0` is None for a worker that joins later and has to ask."""

    @abstractmethod
    def round(self, w: Any) -> Round:
        """One round of one worker."""

    def on_call(self, s: Any, worker: int, payload: Any) -> Iterable[ServerEffect]:
        """The server's answer to one message. No `Reply` now means that the worker waits."""
        raise NotImplementedError(f"{type(self).__name__} has no server")

    def on_message(self, w: Any, sender: int, message: Any) -> Iterable[Applied | Received | Stepped]:
        """A peer's message, handled atomically while the worker waits at a yield; may announce what it did."""
        raise NotImplementedError(f"{type(self).__name__} takes no messages from peers")

    def revive(self, w: Any, world: World) -> Any:
        """Gives a worker's decoded state the objects that a checkpoint cannot carry (an optimizer at work)."""
        return w

    def on_join(self, s: Any, worker: int) -> Iterable[ServerEffect]:
        """A worker appeared."""
        return ()

    def on_lost(self, s: Any, worker: int) -> Iterable[ServerEffect]:
        """A worker was lost, or finished its own budget."""
        return ()

    def held(self, s: Any) -> Iterable[tuple[int, Gradient]]:
        """Gradients that the server has received and not yet used, for the books."""
        return ()

    def kept(self, w: Any) -> Iterable[Gradient]:
        """Gradients that a worker has computed and not yet pushed, for the books."""
        return ()

    @abstractmethod
    def parameters(self, s: Any, workers: Mapping[int, Any]) -> Any:
        """The parameters that are evaluated and saved."""

    def lr(self, s: Any, work: float) -> float | None:
        """The learning rate in force at this moment of the work clock, for the record."""
        return None

    def save_server(self, s: Any) -> Any:
        """The server's state as plain values, tensors and records."""
        return s

    def load_server(self, saved: Any, x0: Any, world: World) -> Any:
        """The inverse of `save_server`."""
        return saved


__all__ = ["Round", "Solver", "World"]
