"""A worker's messages to the server, and their answers: waited for at once, or while the next gradient is computed."""

from collections.abc import Callable
from typing import Any

from offbeat.core.effects import Await, Call, Push
from offbeat.engines.real import messages as m
from offbeat.engines.real.checkpoint import SavedWorker
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Port
from offbeat.engines.running.rounds import Rounds


class Calls:
    """One message is under way at a time. With it goes the work clock of the gradients since the last one."""

    def __init__(self, site: Site, rank: int, port: Port, hear: Callable[[float | None], bool]) -> None:
        """`hear` sees to one message of whomever, in time, and says whether there was one."""
        self._board, self._clock, self._rank, self._port, self._hear = site.board, site.clock, rank, port, hear
        self._goes_on = Push in site.solver.asks  # and the server has to be told when it waits
        self._answer: m.Answered | None = None  # that has come, and was not handed to the rule
        self.rounds: Rounds
        """The rule at work. Set by the loop."""
        self.works: list[int] = []
        """The work clock of each gradient since the last message,"""
        self._sent_works: list[int] = []  # and those that went with it, until it is answered

    # -- what rules ask for -------------------------------------------------------------------------------------

    def call(self, effect: Call) -> Any:
        self._send(effect.payload)
        return self._wait()

    def push(self, effect: Push) -> None:
        self._send(effect.payload)

    def wait(self, effect: Await) -> Any:
        """The answer to the push. It may have come long ago, before this life even."""
        while self._answer is None and self._hear(0):
            pass
        early = self.rounds.early
        return self._wait() if early is None else self._handed_over(early[0])

    def _send(self, payload: Any) -> None:
        begun = self._clock.now()
        sent = self._port.call(payload, self.works)
        self._board.communicating[self._rank] += sent - begun
        self.works, self._sent_works = [], self.works

    def _wait(self) -> Any:
        if self._goes_on and self._answer is None:
            self._port.send(m.Awaits(int(self._board.replies[self._rank])))
        while self._answer is None:
            self._hear(None)
        return self._handed_over(self._answer.value)

    def _handed_over(self, value: Any) -> Any:
        self._answer = None
        return value

    def answered(self, message: m.Answered) -> None:
        """It has come, whatever the worker is at."""
        self._answer, self._sent_works = message, []
        self.rounds.answered_early(message.value)
        self._board.replies[self._rank] += 1
        self._board.communicating[self._rank] += message.seconds

    # -- checkpoints --------------------------------------------------------------------------------------------

    def save(self, saved: SavedWorker) -> None:
        saved.works, saved.sent_works = list(self.works), list(self._sent_works)

    def resume(self, saved: SavedWorker) -> None:
        self.works, self._sent_works = list(saved.works), list(saved.sent_works)

    def go_on(self, saved: SavedWorker, effect: Any, answer: Callable[[Any], Any]) -> Any:
        """What the rule asks for, after a rest: a message that is with the server already is not sent twice."""
        if saved.called:
            if type(effect) is Call:
                return answer(self._wait())
            return answer(None) if type(effect) is Push else effect
        later, pushed = self.works, self.rounds.pushed
        self.works = self._sent_works + later
        if pushed is not None and type(effect) is not Push and self.rounds.early is None:  # nobody has heard it
            self.works = self._sent_works
            self._send(pushed.payload)
            self.works = later
        return effect
