"""Workers that share the cores of their node: those that compute divide them equally.

A delay is no computing, and takes no core. A spell of slowness slows its worker, whatever its share of a core.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from offbeat.engines.cluster import Cluster
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import CHANGED, SHARED, WOKEN
from offbeat.engines.sim.fair_share import FairShare


def share_cores(cluster: Cluster) -> bool:
    """Whether anybody ever has to share."""
    if cluster.cores is None:
        return False
    return max(Counter(map(cluster.node_of, range(cluster.workers))).values()) > cluster.cores


class Cores:
    """One share for each node. `finished` is called with a worker whose gradient is ready."""

    def __init__(self, context: Context, finished: Callable[[int], None]) -> None:
        self._context, self._finished = context, finished
        cluster = context.cluster
        assert cluster.cores is not None
        self._node = [cluster.node_of(i) for i in range(cluster.workers)]
        self._nodes = [FairShare(cluster.cores, 1.0) for _ in range(max(self._node) + 1)]
        self.round: dict[int, int] = {}  # how many gradients a worker has begun: what belongs to an earlier one is void
        self.speed: dict[int, float] = {}  # of those with spells of slowness that compute

    def begin(self, i: int, delay: float, work: float) -> None:
        """Worker i waits for so long, and then computes for so long if it has a core of its own."""
        self.round[i] = self.round.get(i, 0) + 1
        if delay > 0:
            self._context.events.push(self._context.now + delay, i, WOKEN, (self.round[i], work))
        else:
            self._start(i, work)

    def woken(self, i: int, data: tuple[int, float]) -> None:
        if self.round[i] == data[0]:
            self._start(i, data[1])

    def _start(self, i: int, work: float) -> None:
        context, pace = self._context, self._context.workers[i].pace
        if pace is not None:
            self.speed[i] = pace.speed(context.now)
            work /= self.speed[i]
            self._await_change(i)
        self._nodes[self._node[i]].begin(context.now, i, work)
        self._next(i)

    def changed(self, i: int, number: int) -> None:
        """A spell of slowness begins or ends while the worker computes."""
        share = self._nodes[self._node[i]]
        if self.round[i] != number or i not in share.ends:
            return
        pace = self._context.workers[i].pace
        assert pace is not None
        before, self.speed[i] = self.speed[i], pace.speed(self._context.now)
        share.stretch(self._context.now, i, before / self.speed[i])
        self._await_change(i)
        self._next(i)

    def _await_change(self, i: int) -> None:
        pace = self._context.workers[i].pace
        assert pace is not None
        if (at := pace.change()) < float("inf"):
            self._context.events.push(at, i, CHANGED, self.round[i])

    def shared(self, i: int, _: Any) -> None:
        """If nobody came or went meanwhile, worker i is finished."""
        node = self._node[i]
        if self._nodes[node].first() != (self._context.now, i):
            return  # somebody did: what is due now was pushed then
        self._nodes[node].finish(self._context.now, i)
        self._next(i)
        self._finished(i)

    def drop(self, i: int) -> None:
        """Its gradient is given up."""
        self.round[i] = self.round.get(i, 0) + 1
        share = self._nodes[self._node[i]]
        if i in share.ends:
            share.drop(self._context.now, i)
            self._next(i)

    def _next(self, i: int) -> None:
        """Who is finished first on worker i's node may be somebody else now, or later."""
        if (first := self._nodes[self._node[i]].first()) is not None:
            self._context.events.push(*first, SHARED, None)

    def saved(self) -> dict[str, Any]:
        shares = [share.saved() for share in self._nodes]
        return {"shares": shares, "round": self.round, "speed": self.speed}

    def load(self, saved: dict[str, Any]) -> None:
        self.round, self.speed = saved["round"], saved["speed"]
        for share, one in zip(self._nodes, saved["shares"], strict=True):
            share.load(one)
