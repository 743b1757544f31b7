"""A worker as the server sees it."""

import time
from typing import Any


class Peer:
    """What the server knows of one worker in one of its lives."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
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
        return self.waiting or self.idle or self.resting or self.suspected

    def is_told(self) -> None:
        """Something of a peer, which ends its waiting for one."""
        self.told, self.idle, self.heard = self.told + 1, False, time.monotonic()
