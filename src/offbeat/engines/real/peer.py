"""A worker as the server sees it."""

import time
from typing import Any

from offbeat.core.effects import View


class Peer:
    """What the server knows of one worker in one of its lives."""

    def __init__(self, rank: int, *, goes_on: bool = False) -> None:
        """`goes_on`: it may compute while its call is with the server, and says when it waits for the answer."""
        self.rank, self._goes_on = rank, goes_on
        self.busy = goes_on  # whatever it waits for, it has not said that it does
        self.replies = 0
        self.last: Any = None  # the last reply
        self.fresh = True  # it has not begun with what it was last sent
        self.waiting = False  # for an answer of the server's
        self.idle = False  # it waits for a message of a peer
        self.told = 0  # what it was told of peers: letters, who is gone, who is back
        self.resting = False  # between two rounds
        self.suspicious: float | None = None  # a loss that the watcher has not been asked about yet
        self.suspected = False  # it waits for what the watcher says of a loss
        self.signs = 0  # of life, on the board
        self.heard = time.monotonic()

    @property
    def still(self) -> bool:
        """It does nothing until it is told something."""
        return (self.waiting and not self.busy) or self.idle or self.resting or self.suspected

    def is_answered(self, value: Any) -> None:
        """The server's answer to its call."""
        self.last, self.replies, self.waiting, self.fresh = value, self.replies + 1, False, True
        self.busy, self.heard = self._goes_on, time.monotonic()

    def unread_view(self, begun: bool) -> View | None:
        """Parameters that it was sent and has begun nothing with; `begun`: it has a gradient that is not with us."""
        unread = self.fresh and (self._goes_on or not begun)
        return self.last if unread and isinstance(self.last, View) else None

    def is_told(self) -> None:
        """Something of a peer, which ends its waiting for one."""
        self.told, self.idle, self.heard = self.told + 1, False, time.monotonic()
