"""What is to come, on the pages of a calendar: nearly all events are put on a later page, and a page is sorted once.

A heap of thousands of events is walked through, from its top to its bottom, for each of them. Here an event is put on a
list, and taken from one that is sorted. The order is the same: that of the events.
"""

from heapq import heappop, heappush
from math import inf
from typing import Any

from offbeat.engines.sim.event_heap import Event

A_PAGE = 32  # about so many events
END: Event = (inf, 0, 0, -1, None)
"""There is nothing else to come."""


class Calendar:
    """Events by page; page k has those from k / `pace` seconds on.

    One page is open, with whoever reads it: what comes before the next page is inserted there. `later` are the others.
    """

    def __init__(self, events: list[Event]) -> None:
        times = sorted(event[0] for event in events)
        usual = times[len(times) // 2] if times else 0.0
        self.pace = len(events) / (A_PAGE * usual) if usual else 0.0
        self.later: dict[int, list[Any]] = {}
        self._numbers: list[int] = []
        self._unread: list[Any] = []
        for event in events:
            self.put(int(event[0] * self.pace), event)

    def put(self, page: int, event: Any) -> None:
        if page in self.later:
            self.later[page].append(event)
        else:
            self.later[page] = [event]
            heappush(self._numbers, page)

    def turn(self) -> tuple[float, list[Any]]:
        """The next page that has something on it, sorted: its number and its events; the end, if there is none."""
        if not self._numbers:
            return inf, [END]
        number = heappop(self._numbers)
        page = self.later.pop(number)
        page.sort()
        return number, page

    def close(self, unread: list[Any]) -> None:
        """Takes back what was not read of the open page."""
        self._unread = unread

    def rest(self) -> list[Any]:
        """All that is still to come, in no order."""
        return self._unread + [event for page in self.later.values() for event in page]
