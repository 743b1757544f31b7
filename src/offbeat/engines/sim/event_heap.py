"""What is to happen when: a heap of events, in an order that is chosen."""

from heapq import heappush
from typing import Any

Event = tuple[float, int, int, int, Any]
"""(time, worker, sequence, code, data): the first three decide who comes first."""

CODES = range(23)
COMPUTED, FED, ARRIVED, SERVED, DELIVERED, REDUCED, MESSAGE, MIXED, READ, ADDED, CANCELLING, LOSE, JOIN, *_ = CODES
*_, WOKEN, SHARED, CHANGED, ENTERED, PASSED, NOTICE, TAKEN, BACK, SUMMED, RELEASED = CODES
"""New ones come last: a checkpoint holds the numbers."""


class Events:
    """Events by (time, worker, sequence)."""

    __slots__ = ("heap", "sequence")

    def __init__(self) -> None:
        self.heap: list[Event] = []
        self.sequence = 0

    def push(self, time: float, worker: int, code: int, data: Any) -> None:
        self.sequence += 1
        heappush(self.heap, (time, worker, self.sequence, code, data))
