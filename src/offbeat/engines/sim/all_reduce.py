"""All-reduce in the simulator: a barrier among its members, then everybody has the same bits."""

from typing import Any

from offbeat.core.effects import AllReduce, Reduced
from offbeat.core.reduction import mean_of, payload_bytes
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import REDUCED, SUMMED
from offbeat.engines.sim.sim_worker import SimWorker


class Reduction:
    """Who waits in which all-reduce."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.waiting: dict[int, AllReduce] = {}
        self._last: tuple[Any, float] = (None, 0.0)
        self.open: dict[int, tuple[Any, list[tuple[int, int]], int]] = {}
        """Where members need a core for their part: the answer, who is to have it, and how many are not finished."""
        self._opened = 0

    def begin(self, i: int, w: SimWorker, effect: AllReduce) -> None:
        self.waiting[i] = effect
        self._complete(effect.members)

    def lost(self, i: int) -> None:
        """The rest of a group must not wait for the dead."""
        gone = self.waiting.pop(i, None)
        groups = {effect.members for effect in self.waiting.values()} | ({gone.members} if gone else set())
        for members in sorted(groups, key=str):
            self._complete(members)

    def _complete(self, members: tuple[int, ...] | None) -> None:
        context = self._context
        if members is None and len(self.waiting) < context.living:
            return  # the usual case, without looking at everybody
        everybody = range(len(context.workers)) if members is None else members
        alive = [i for i in everybody if context.workers[i].alive]
        if not alive or any(i not in self.waiting or self.waiting[i].members != members for i in alive):
            return
        asked = [self.waiting.pop(i) for i in alive]
        given = [a for a in asked if a.weight]
        mean = mean_of([a.value for a in given], [a.weight for a in given], asked[0].group)
        answer = Reduced(mean, sum(a.weight for a in given), tuple(alive), context.ledger.samples)
        # A broadcast is the second half of an all-reduce.
        passes = min(len(given), 2)
        size = payload_bytes(answer.value)
        context.bytes += passes * size * (len(alive) - 1)
        takes = passes / 2 * self._seconds(size, tuple(alive), asked[0].group)
        lives = [(i, context.workers[i].life) for i in alive]
        if context.cluster.cores_for == "everything" and takes > 0:
            self._opened += 1
            self.open[self._opened] = (answer, lives, len(alive))
            for i in alive:
                context.spend(i, takes, SUMMED, self._opened)
            return
        for i in alive:
            context.workers[i].communicating += takes
        context.events.push(context.now + takes, -1, REDUCED, (answer, lives))

    def summed(self, _: int, number: int) -> None:
        """A member has done its part; with the last of them it is over."""
        answer, lives, left = self.open[number]
        self.open[number] = (answer, lives, left - 1)
        if left == 1:
            del self.open[number]
            self.end(-1, (answer, lives))

    def _seconds(self, size: int, alive: tuple[int, ...], group: int | None) -> float:
        """What it costs; remembered, because where workers are on nodes every step is looked at."""
        key = (size, alive, group)
        if key != self._last[0]:
            self._last = (key, self._context.cluster.allreduce_time(size, len(alive), group, alive))
        return self._last[1]

    def end(self, _: int, data: tuple[Any, list[tuple[int, int]]]) -> None:
        answer, lives = data
        for i, life in lives:
            self._context.deliver(i, life, answer)

    def saved(self) -> dict[str, Any]:
        return {"open": self.open, "opened": self._opened}

    def load(self, saved: dict[str, Any]) -> None:
        self.open, self._opened = saved["open"], saved["opened"]
