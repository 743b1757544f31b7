"""Messages between workers and the server, one by one: when each set out, and when it was there."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_HELD = 0.001  # seconds that the server holds a gradient back, beyond its service, until it counts as held

Row = Mapping[str, Any]


class Transfer(NamedTuple):
    """One message."""

    worker: int
    out: bool
    """From the server; otherwise to it."""
    sent: float
    there: float
    queued: bool = False
    """It may have waited for the server besides."""

    @property
    def seconds(self) -> float:
        return self.there - self.sent


def transfers(gradients: Sequence[Row], calls: Sequence[Row], service: float) -> list[Transfer]:
    """To the server: from computed to heard there. Back: from served to begun with the next.

    A gradient that the server held back was served when it was applied.
    """
    found: list[Transfer] = []
    everybody = sorted(c["time"] for c in calls)
    for worker in sorted({r["worker"] for r in gradients}):
        heard = [c["time"] for c in calls if c["worker"] == worker]
        mine = sorted((r for r in gradients if r["worker"] == worker), key=lambda r: r["started"])
        for row, after in pairwise(mine):
            k = bisect_left(heard, row["computed"])
            if k == len(heard) or heard[k] > after["started"]:
                continue
            before = bisect_left(everybody, heard[k]) - 1
            queued = before >= 0 and everybody[before] + service > row["computed"]
            found.append(Transfer(worker, False, row["computed"], heard[k], queued))
            held = row["time"] - heard[k] > max(3 * service, _HELD)
            sent = row["time"] if held else heard[k] + service
            found.append(Transfer(worker, True, min(sent, after["started"]), after["started"]))
    return found


def unqueued(found: Sequence[Transfer]) -> NDArray[np.float64]:
    """Seconds one way. Messages that found the server busy have waited besides, and are left out."""
    return np.array([t.seconds for t in found if not t.queued])


def alone(found: Sequence[Transfer]) -> list[Transfer]:
    """Those beside which no other message went the same way at any moment."""
    kept: list[Transfer] = []
    for out in (False, True):
        way = sorted((t for t in found if t.out == out), key=lambda t: t.sent)
        busy = float("-inf")  # until then, with those before
        for k, t in enumerate(way):
            after = way[k + 1].sent if k + 1 < len(way) else float("inf")
            if busy <= t.sent and t.there <= after:
                kept.append(t)
            busy = max(busy, t.there)
    return kept


def most_at_once(found: Sequence[Transfer]) -> int:
    """How many messages went the same way together, at most."""
    most = 0
    for out in (False, True):
        moments = sorted((at, step) for t in found if t.out == out for at, step in ((t.sent, 1), (t.there, -1)))
        under_way = 0
        for _, step in moments:
            under_way += step
            most = max(most, under_way)
    return most
