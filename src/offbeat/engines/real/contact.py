"""The control's contact with the server: what it says, what it is asked, and what it does not answer any more."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from offbeat.engines.real import messages as m
from offbeat.engines.real.mirror import Mirror
from offbeat.engines.real.transport import Closed, ControlLine, RunError

GONE, SILENT = "was lost", "did not answer"
_LOOK = 0.05  # seconds between two looks at what the server has written down
_AWAY = 1.0  # who does not look for longer than this cannot say who was silent


class ServerLostError(RunError):
    """The server has ended, or is silent; a run goes on with another."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the server {how}")
        self.how = how


class Contact:
    """With one server, for as long as it lives. What it has written down is taken over before what it says is heard."""

    def __init__(
        self,
        line: ControlLine,
        mirror: Mirror,
        patience_seconds: float,
        at_once: Callable[[m.ToControl], bool],
        silent: Callable[[float], None],
    ) -> None:
        """`at_once` sees to what cannot wait, whatever is being asked: who is gone, who joins, what failed. `silent` is
        told how long nothing has come."""
        self._line, self._mirror, self._patience = line, mirror, patience_seconds
        self._at_once, self._silent = at_once, silent
        self._inbox: deque[m.ToControl] = deque()
        self._looked = self._since = monotonic()

    def next(self) -> m.ToControl | None:
        """Its next message; None when nothing comes for a moment."""
        if self._inbox:
            return self._inbox.popleft()
        found = self._look()
        return None if found is None else found[0]

    def request(self, question: m.FromControl, answer: type) -> Any:
        """Asks it; what else it says meanwhile is kept for later."""
        try:
            self._line.send(question)
        except Closed:
            raise ServerLostError(GONE) from None
        while True:
            found = self._look()
            if found is None:
                continue
            message, seen_to = found
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

    def last_words(self) -> list[m.ToControl]:
        """When it has ended: what it had said, and nobody has heard."""
        said = []
        with suppress(Closed):
            while (message := self._line.receive(_LOOK)) is not None:
                said.append(message)
        return said

    def close(self) -> None:
        self._line.close()

    def _look(self) -> tuple[m.ToControl, bool] | None:
        """Its next message, and whether it was seen to at once; None when nothing comes for a moment."""
        if monotonic() - self._looked > _AWAY:
            self._since = monotonic()
        try:
            message = self._line.receive(_LOOK)
        except Closed:
            raise ServerLostError(GONE) from None
        self.take_over()
        self._looked = monotonic()
        if message is not None:
            self._since = self._looked
            self._mirror.now = max(self._mirror.now, getattr(message, "now", 0.0))
            return message, self._at_once(message)
        if self._looked - self._since > self._patience:
            raise ServerLostError(SILENT)
        self._silent(self._looked - self._since)
        return None
