"""All-reduce in the simulator: a barrier among its members, then everybody has the same bits."""

from typing import Any

from offbeat.core.effects import AllReduce, Reduced
from offbeat.core.reduction import mean_of, payload_bytes
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import REDUCED
from offbeat.engines.sim.sim_worker import SimWorker


class Reduction:
    """Who waits in which all-reduce."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.waiting: dict[int, AllReduce] = {}
        self._last: tuple[Any, float] = (None, 0.0)

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
        for i in alive:
            context.workers[i].communicating += takes
        context.events.push(context.now + takes, -1, REDUCED, (answer, [(i, context.workers[i].life) for i in alive]))

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
