"""Workers that share the cores of their node: those that compute divide them equally, or have them in turns.

A delay is no computing, and takes no core. A spell of slowness slows its worker, whatever its share of a core.

On one machine messages, passes over memory and the server's service are work of the same cores: with
`cores_for = "everything"` each of them is a task that needs a core as long as it would take alone.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from offbeat.core.seeds import Draws
from offbeat.engines.cluster import Cluster
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import CHANGED, RELEASED, SERVED, SHARED, WOKEN
from offbeat.engines.sim.fair_share import FairShare
from offbeat.engines.sim.turns import Turns


def share_cores(cluster: Cluster) -> bool:
    """Whether anybody ever has to share."""
    if cluster.cores is None:
        return False
    if cluster.cores_for == "everything":
        return True
    return max(Counter(map(cluster.node_of, range(cluster.workers))).values()) > cluster.cores


SERVER = -1
"""Its process; those of workers have their numbers."""
_LAST = 1 << 62  # where a worker's number would be: what happens after all else of a moment


class CoreTask(NamedTuple):
    """What needs a core and is no gradient: for whom it is, since when, and the event that happens at its end."""

    worker: int
    since: float
    code: int
    data: Any


class Cores:
    """One share for each node. `finished` is called with a worker whose gradient is ready.

    Gradients have the numbers of their workers, tasks those that follow.
    """

    def __init__(self, context: Context, finished: Callable[[int], None]) -> None:
        self._context, self._finished = context, finished
        cluster = context.cluster
        assert cluster.cores is not None
        self._node = [cluster.node_of(i) for i in range(cluster.workers)]
        self._nodes = [_share(context, cluster.cores, node) for node in range(max(self._node) + 1)]
        self.everything = cluster.cores_for == "everything"
        self.tasks: dict[int, CoreTask] = {}
        self._numbered = cluster.workers
        self.round: dict[int, int] = {}  # how many gradients a worker has begun: what belongs to an earlier one is void
        self.speed: dict[int, float] = {}  # of those with spells of slowness that compute

    def begin(self, i: int, delay: float, work: float) -> None:
        """Worker i waits for so long, and then computes for so long if it has a core of its own."""
        self.round[i] = self.round.get(i, 0) + 1
        if delay > 0:
            self._context.events.push(self._context.now + delay, i, WOKEN, (self.round[i], work))
        else:
            self._start(i, work)

    def spend(self, i: int, takes: float, code: int, data: Any) -> None:
        """A task for worker i that takes so long on a core of its own; then its event happens.

        A service is the server's, which sleeps when it has nothing to do. Who has slept gets a core at once.
        """
        now, number = self._context.now, self._numbered
        self._numbered += 1
        self.tasks[number] = CoreTask(i, now, code, data)
        serving = code == SERVED
        self._share_of(number).begin(now, number, takes, SERVER if serving else i, ahead=serving)
        self._next(number)

    def woken(self, i: int, data: tuple[int, float]) -> None:
        if self.round[i] == data[0]:
            self._start(i, data[1])

    def _start(self, i: int, work: float) -> None:
        context, pace = self._context, self._context.workers[i].pace
        if pace is not None:
            self.speed[i] = pace.speed(context.now)
            work /= self.speed[i]
            self._await_change(i)
        self._share_of(i).begin(context.now, i, work, i)
        self._next(i)

    def changed(self, i: int, number: int) -> None:
        """A spell of slowness begins or ends while the worker computes."""
        share = self._share_of(i)
        if self.round[i] != number or i not in share:
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

    def shared(self, key: int, _: Any) -> None:
        """If nobody came or went meanwhile, a gradient or a task is finished, or its turn is over."""
        now, share = self._context.now, self._share_of(key)
        if share.first() != (now, key):
            return  # somebody did: what is due now was pushed then
        over = share.finish(now, key)
        self._next(key)
        if not over:
            return
        task = self.tasks.pop(key, None)
        if share.waiting:
            whose = (key, key) if task is None else (task.worker, SERVER if task.code == SERVED else task.worker)
            self._context.events.push(now, _LAST, RELEASED, whose)
        if task is None:
            self._finished(key)
            return
        if task.code != SERVED:  # which is the server's time
            self._context.workers[task.worker].communicating += now - task.since
        self._context.events.push(now, task.worker, task.code, task.data)

    def released(self, _: int, whose: tuple[int, int]) -> None:
        """(a worker of its node, a process) had no other work at that moment."""
        worker, process = whose
        self._share_of(worker).release(self._context.now, process)
        self._next(worker)

    def drop(self, i: int) -> None:
        """Its gradient is given up."""
        self.round[i] = self.round.get(i, 0) + 1
        share = self._share_of(i)
        if i in share:
            share.drop(self._context.now, i)
            self._next(i)

    def _share_of(self, key: int) -> FairShare | Turns:
        """Tasks are those of one machine."""
        return self._nodes[self._node[key] if key < len(self._node) else 0]

    def _next(self, key: int) -> None:
        """Who is finished first on the same node may be somebody else now, or later."""
        if (first := self._share_of(key).first()) is not None:
            self._context.events.push(*first, SHARED, None)

    def under_way(self) -> list[tuple[int, int, Any]]:
        """(worker, code, data) of tasks that are not finished, in the order in which they were begun."""
        return [(task.worker, task.code, task.data) for task in self.tasks.values()]

    def saved(self) -> dict[str, Any]:
        shares = [share.saved() for share in self._nodes]
        tasks = {number: tuple(task) for number, task in self.tasks.items()}
        others = {"tasks": tasks, "numbered": self._numbered} if self.everything else {}
        return {"shares": shares, "round": self.round, "speed": self.speed, **others}

    def load(self, saved: dict[str, Any]) -> None:
        self.round, self.speed = saved["round"], saved["speed"]
        if self.everything:
            self.tasks = {number: CoreTask(*task) for number, task in saved["tasks"].items()}
            self._numbered = saved["numbered"]
        for share, one in zip(self._nodes, saved["shares"], strict=True):
            share.load(one)


def _share(context: Context, cores: int, node: int) -> FairShare | Turns:
    slices = context.cluster.slice
    if not slices.mean > 0:
        return FairShare(cores, 1.0)
    return Turns(cores, Draws(slices.sample, seed=context.seed, stream="slice", source=node, dial=context.dial))
