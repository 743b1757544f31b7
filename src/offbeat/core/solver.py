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


@dataclass(frozen=True, slots=True)
class Shown:
    """What a worker shows of itself to those who evaluate: its parameters, and the weight that they carry."""

    x: Any
    weight: float = 1.0
    """The w of push-sum (x / w are the parameters); 1 for all other methods."""


class Solver(ABC):
    """What a worker does in one round, and what the server does with a message.

    A rule sees versions and a work clock (samples), never time, threads, devices or global randomness. All state that
    lasts lives in the two state records; tensors in them are replaced, never mutated. A round holds at most one `Grad`.
    The one thing that may mutate, a torch optimizer, steps last in its round: a round may be run again from its start.
    """

    asks: frozenset[type] = frozenset({Grad, Call})
    """The effects its rounds use; an engine that lacks one refuses the solver before anything starts."""
    records: ClassVar[tuple[type, ...]] = ()
    """Classes of its states and messages, for checkpoints."""
    alone: ClassVar[bool] = False
    """Whether it is a rule for one worker, and refuses more."""
    barrier: bool = False
    """Whether one update takes a gradient of every worker."""
    shows_workers: ClassVar[bool] = False
    """Whether what is evaluated is made of the workers' own parameters: `parameters` is given what they show."""
    vectors: ClassVar[int] = 2
    """About how many vectors of the parameters' size a simulation keeps of each worker: its own, the server's of it,
    and those in messages. With them, runs that would not fit into memory are refused."""
    bytes_a_peer: ClassVar[int] = 0
    """What a worker keeps of each other one, beside vectors: a clock, a place in a list of neighbours."""
    needs_whole: ClassVar[str | None] = None
    """Why its server's vectors cannot lie in parts on several machines; None where it treats components one by one."""
    takes_in: bool = True
    """Whether workers may come later, for the first time or again; a lost one cannot be restarted otherwise."""
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

    def why_not(self, world: World) -> str | None:
        """Why it cannot run in this world, in words; None where it can. Asked before anything is built."""
        if self.alone and world.workers != 1:
            return f"{type(self).__name__} runs on one worker, got workers={world.workers}"
        if world.joining and not self.takes_in:
            names = ", ".join(str(i) for i in world.joining)
            return (
                f"{type(self).__name__} cannot take in workers that join later ({names}): there is no server that "
                "could send them the parameters"
            )
        return None

    def why_whole(self) -> str | None:
        """The same, of a solver with its options."""
        return self.needs_whole

    def rate_in_place(self) -> Callable[[float], float] | None:
        """eta over the work clock, if the rule is x <- x - eta g in place without a lock; None otherwise.

        Where only its optimizer is in the way, it is refused with the reason.
        """
        return None

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

    def version(self, s: Any) -> int | None:
        """How many updates the server's parameters have seen; None where there is no server that counts them."""
        return None

    def shown(self, w: Any) -> Shown | None:
        """What a worker shows of itself, where `shows_workers`; None while it has no parameters yet."""
        return None

    @abstractmethod
    def parameters(self, s: Any, workers: Mapping[int, Shown]) -> Any:
        """The parameters that are evaluated and saved, from the server's state and what the workers show."""

    def optimizer_options(self, s: Any) -> Mapping[str, Any] | None:
        """The options of the torch optimizer that the server steps with, if it has one."""
        return None

    def lr(self, s: Any, work: float) -> float | None:
        """The learning rate in force at this moment of the work clock, for the record."""
        return None

    def save_server(self, s: Any) -> Any:
        """The server's state as plain values, tensors and records."""
        return s

    def load_server(self, saved: Any, x0: Any, world: World) -> Any:
        """The inverse of `save_server`."""
        return saved


__all__ = ["Round", "Shown", "Solver", "World"]
