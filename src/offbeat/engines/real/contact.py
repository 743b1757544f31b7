"""The control's contact with the server: what it says, what it is asked, and what it does not answer any more."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from offbeat.engines.real import messages as m
from offbeat.engines.real.mirror import Mirror
from offbeat.engines.real.transport import Closed, Line, RunError

GONE, SILENT = "was lost", "did not answer"
_LOOK = 0.05  # seconds between two looks at what the server has written down


class ServerLostError(RunError):
    """The server has ended, or is silent; a run goes on with another."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the server {how}")
        self.how = how


class Contact:
    """With one server, for as long as it lives. What it has written down is taken over before what it says is heard."""

    def __init__(
        self, line: Line, mirror: Mirror, patience_seconds: float, at_once: Callable[[m.ToControl], bool]
    ) -> None:
        """`at_once` sees to what cannot wait, whatever is being asked: who is gone, who joins, what failed."""
        self._line, self._mirror, self._patience, self._at_once = line, mirror, patience_seconds, at_once
        self._inbox: deque[m.ToControl] = deque()

    def next(self) -> m.ToControl:
        """Its next message."""
        return self._inbox.popleft() if self._inbox else self._receive()[0]

    def request(self, question: m.FromControl, answer: type) -> Any:
        """Asks it; what else it says meanwhile is kept for later."""
        try:
            self._line.send(question)
        except Closed:
            raise ServerLostError(GONE) from None
        while True:
            message, seen_to = self._receive()
            if isinstance(message, answer):
                return message
            if not seen_to:
                self._inbox.append(message)

    def tell(self, order: m.FromControl) -> None:
        with suppress(Closed):  # noticed when its line is read
            self._line.send(order)

    def take_over(self) -> None:
        """What it has written down; also when it is gone."""
        self._mirror.take(self._line.committed())

    def take_all(self) -> None:
        """When everybody has ended: also what workers had announced, and it had not read."""
        self.take_over()
        self._mirror.take_announced(*self._line.announced())

    def close(self) -> None:
        self._line.close()

    def _receive(self) -> tuple[m.ToControl, bool]:
        """Its next message, and whether it was seen to at once."""
        deadline = monotonic() + self._patience
        try:
            while True:
                message = self._line.receive(_LOOK)
                self.take_over()
                if message is not None:
                    self._mirror.now = max(self._mirror.now, getattr(message, "now", 0.0))
                    return message, self._at_once(message)
                if monotonic() > deadline:
                    raise ServerLostError(SILENT)
        except Closed:
            raise ServerLostError(GONE) from None
