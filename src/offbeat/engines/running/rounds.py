"""A worker's rule at work: one round after another, what it asks for, and what it was told since the round began."""

from collections.abc import Iterable
from typing import Any

from offbeat.core.codec import Codec
from offbeat.core.effects import Applied, Call, Gradient
from offbeat.core.solver import Round, Solver

ANSWER, MESSAGE, MIXED = "answer", "message", "mixed"
BETWEEN = "between two rounds"
Told = tuple[str, int | None, Any]
"""What a round was told: (ANSWER, None, value), (MESSAGE, sender, message) or (MIXED, None, the new x)."""


class Rounds:
    """The rounds of one life of a worker.

    With a codec it remembers the state at the start of the round and everything the round was told since. That is all a
    checkpoint needs, wherever it falls: the round is run again against the same answers (`rerun`).
    """

    __slots__ = ("_codec", "_pauses", "_round", "_solver", "gradient", "pending", "start", "state", "told")

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
        self._round: Round | None = None

    def begin(self) -> Any:
        """Starts a round; what it asks for first."""
        self._start()
        return self._go(None)

    def answer(self, value: Any) -> Any:
        """Answers what is pending; what the rule asks for next, in this round or in a new one."""
        if self._codec is not None:
            self.told.append((ANSWER, None, value))
        if type(value) is Gradient:
            self.gradient = value
        return self._go(value)

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
        self.pending = next(self._round)
        for kind, sender, value in self.told:
            if kind == ANSWER:
                if type(value) is Gradient:
                    self.gradient = value
                self._hand(value)
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
                self.gradient = None
                if self._pauses:
                    self.pending = BETWEEN
                    return BETWEEN
                self._start()
                value = None

    def _hand(self, value: Any) -> Any:
        assert self._round is not None
        effect = self.pending = self._round.send(value)
        if type(effect) is Call or type(effect) is Applied:
            self.gradient = None
        return effect
