"""The server's own link: one way in and one way out, each shared by all messages.

A message of N bytes goes over its worker's link (latency, bandwidth b) and over the server's (B bytes a second) at the
same time: bytes go on as they come.

fifo  One message after another. One that sets out at t has its first byte there at t + latency, and its last at
      max(t + latency + N / b, max(t + latency, free) + N / B); `free` is when the link is through with those before it.
fair  All at once: with n messages on the link, each gets min(b, B / n) from t + latency on.
"""

from collections.abc import Callable
from typing import Any

from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import ARRIVED, ENTERED, PASSED
from offbeat.engines.sim.fair_share import FairShare
from offbeat.engines.sim.sim_worker import SimWorker

Letter = tuple[int, Any]
"""(the sender's or receiver's life, what is sent)."""
Through = Callable[[int, int, Letter], None]
"""Called with (worker, code, letter) when a message is where it was sent."""


def in_turn(first: float, free: float, size: float, own: float, total: float) -> tuple[float, float]:
    """When the link is free again after a message whose first byte comes at `first`, and when its last one is there."""
    free = (free if free > first else first) + size / total
    last = first + size / own
    return free, (free if free > last else last)


class Ways:
    """Both ways of the server's link."""

    def __init__(self, context: Context, through: Through) -> None:
        self._context, self._through = context, through
        cluster = context.cluster
        self._latency, self._own, self._total = cluster.latency, cluster.bandwidth, cluster.server.total
        self.free = [0.0, 0.0]  # in, out: the link is through with what was sent (fifo)
        self.shares = [FairShare(self._total, self._own) for _ in range(2)] if cluster.server.sharing == "fair" else []
        self.inside: dict[int, tuple[int, int, float, Letter]] = {}  # by number: worker, code, when sent, letter (fair)
        self._sent = 0

    def send(self, i: int, w: SimWorker, size: int, code: int, value: Any) -> None:
        if self.shares:
            self._sent += 1
            self.inside[self._sent] = (i, code, self._context.now, (w.life, value))
            if self._latency > 0:
                self._context.events.push(self._context.now + self._latency, i, ENTERED, (self._sent, size))
            else:
                self.entered(i, (self._sent, size))
            return
        context = self._context
        there = self.first_come(code != ARRIVED, context.now, size)
        w.communicating += there - context.now
        if there > context.now:
            context.events.push(there, i, code, (w.life, value))
        else:
            self._through(i, code, (w.life, value))

    def first_come(self, out: bool, now: float, size: int) -> float:
        """When a message is there that sets out now."""
        self.free[out], there = in_turn(now + self._latency, self.free[out], size, self._own, self._total)
        return there

    def entered(self, i: int, data: tuple[int, int]) -> None:
        """The first byte of a message has reached the server's link."""
        number, size = data
        out = self.inside[number][1] != ARRIVED
        self.shares[out].begin(self._context.now, number, size)
        self._next(out)

    def passed(self, i: int, data: tuple[bool, int]) -> None:
        """If nothing came or went meanwhile, a message is through."""
        out, number = data
        context, share = self._context, self.shares[out]
        if share.first() != (context.now, number):
            return
        share.finish(context.now, number)
        self._next(out)
        worker, code, sent, letter = self.inside.pop(number)
        context.workers[worker].communicating += context.now - sent
        self._through(worker, code, letter)

    def _next(self, out: bool) -> None:
        if (first := self.shares[out].first()) is not None:
            at, number = first
            self._context.events.push(at, self.inside[number][0], PASSED, (out, number))

    def under_way(self) -> list[tuple[int, int, Letter]]:
        """(worker, code, letter) of what is on the link, in the order in which it was sent."""
        return [(i, code, letter) for i, code, _, letter in self.inside.values()]

    def saved(self) -> dict[str, Any]:
        shares = [share.saved() for share in self.shares]
        return {"free": self.free, "shares": shares, "inside": self.inside, "sent": self._sent}

    def load(self, saved: dict[str, Any]) -> None:
        self.free, self.inside, self._sent = saved["free"], saved["inside"], saved["sent"]
        for share, one in zip(self.shares, saved["shares"], strict=True):
            share.load(one)
