"""A worker's rule at work: one round after another, what it asks for, and what it was told since the round began."""

from collections.abc import Iterable
from typing import Any

from offbeat.core.codec import Codec
from offbeat.core.effects import Applied, Await, Call, Gradient, Push
from offbeat.core.errors import RuleError
from offbeat.core.solver import Round, Solver

ANSWER, MESSAGE, MIXED, EARLY = "answer", "message", "mixed", "early"
BETWEEN = "between two rounds"
Told = tuple[str, int | None, Any]
"""What a round was told: (ANSWER, None, value), (MESSAGE, sender, message), (MIXED, None, the new x), or (EARLY, None,
the server's answer to a push, before the rule asked for it)."""


class Rounds:
    """The rounds of one life of a worker.

    With a codec it remembers the state at the start of the round and everything the round was told since. That is all a
    checkpoint needs, wherever it falls: the round is run again against the same answers (`rerun`).
    """

    __slots__ = (
        "_codec",
        "_pauses",
        "_round",
        "_solver",
        "early",
        "gradient",
        "pending",
        "pushed",
        "start",
        "state",
        "told",
    )

    def __init__(self, solver: Solver, state: Any, codec: Codec | None = None, *, pauses: bool = False) -> None:
        """With `pauses` it says `BETWEEN` when a round is over, instead of beginning another."""
        self._solver, self._codec, self._pauses = solver, codec, pauses
        self.state = state
        self.start: Any = state
        """The state when the round began."""
        self.told: list[Told] = []
        self.pending: Any = None
        """What the rule waits for."""
        self.gradient: Gradient | None = None
        """A gradient in the hands of the rule: computed, and neither sent nor announced yet."""
        self.pushed: Push | None = None
        """A message that is under way to the server, or its answer back, while the rule does something else."""
        self.early: tuple[Any] | None = None
        """Its answer, if it came before the rule asked for it."""
        self._round: Round | None = None

    def begin(self) -> Any:
        """Starts a round; what it asks for first."""
        self._start()
        return self._go(None)

    def answer(self, value: Any) -> Any:
        """Answers what is pending; what the rule asks for next, in this round or in a new one."""
        if self._codec is not None:
            self.told.append((ANSWER, None, value))
        if isinstance(value, Gradient):
            self.gradient = value
        return self._go(value)

    def answered_early(self, value: Any) -> bool:
        """The server's answer has come. If the rule has not asked for it yet it is kept until then, and True."""
        if self.pushed is None or type(self.pending) is Await:
            return False
        if self._codec is not None:
            self.told.append((EARLY, None, value))
        self.early = (value,)
        return True

    def hear(self, sender: int, message: Any) -> Iterable[Any]:
        """A peer's message, between two requests of the rule; what the rule announces of it."""
        if self._codec is not None:
            self.told.append((MESSAGE, sender, message))
        return self._solver.on_message(self.state, sender, message)

    def mixed(self, x: Any) -> None:
        """A peer has averaged its parameters with ours."""
        if self._codec is not None:
            self.told.append((MIXED, None, x))
        self.state.x = x

    def end(self) -> None:
        """The worker leaves: its round is over, and its state stays as it is."""
        self.start, self.told, self.gradient, self._round, self.pending = self.state, [], None, None, None
        self.pushed = self.early = None

    def rest(self) -> None:
        """Between two rounds: what is kept is the state as it is."""
        assert self.pending is BETWEEN
        if self._codec is not None:
            self.start, self.told = self._codec.snapshot(self.state), []

    def rerun(self, start: Any, told: list[Told]) -> Any:
        """Goes on from a checkpoint: the round is run again against what it was told; what it asks for now.

        What it announces was written down the first time, and is passed over.
        """
        assert self._codec is not None
        self.start, self.told = start, list(told)
        self.state = self._codec.snapshot(start)
        self._round = self._solver.round(self.state)
        self._hand(None)
        for kind, sender, value in self.told:
            if kind == ANSWER:
                if isinstance(value, Gradient):
                    self.gradient = value
                self._hand(value)
            elif kind == EARLY:
                self.early = (value,)
            elif kind == MIXED:
                self.state.x = value
            else:
                list(self._solver.on_message(self.state, sender, value))  # type: ignore[arg-type]  # it has a sender
        return self.pending

    def _start(self) -> None:
        if self._codec is not None:
            self.start, self.told = self._codec.snapshot(self.state), []
        self._round = self._solver.round(self.state)

    def _go(self, value: Any) -> Any:
        while True:
            try:
                return self._hand(value)
            except StopIteration:
                if self.pushed is not None:
                    raise RuleError(f"{self._rule} ended a round without an Await for its Push") from None
                self.gradient = None
                if self._pauses:
                    self.pending = BETWEEN
                    return BETWEEN
                self._start()
                value = None

    def _hand(self, value: Any) -> Any:
        assert self._round is not None
        if type(self.pending) is Await:
            self.pushed = self.early = None
        effect: Any = self._round.send(value)
        self.pending, kind = effect, type(effect)
        if kind is Call or kind is Applied or kind is Push:
            self.gradient = None
        if kind is Push or kind is Await or kind is Call:
            self._keep_order(effect)
        return effect

    def _keep_order(self, effect: Push | Await | Call) -> None:
        """One message at a time: a push is waited for before the next one, or the end of its round."""
        if isinstance(effect, Await):
            if self.pushed is None:
                raise RuleError(f"{self._rule} asked for Await without a Push before it, in the same round")
        elif self.pushed is not None:
            raise RuleError(
                f"{self._rule} asked for {type(effect).__name__} while its Push was not answered: one Await for each"
            )
        elif isinstance(effect, Push):
            self.pushed = effect

    @property
    def _rule(self) -> str:
        return type(self._solver).__name__
