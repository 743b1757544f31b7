"""All-reduce in the simulator: a barrier among its members, then everybody has the same bits."""

from typing import TYPE_CHECKING, Any

from offbeat.core.effects import AllReduce, Reduced
from offbeat.core.reduction import hierarchical_mean, payload_bytes, weighted_mean

if TYPE_CHECKING:
    from offbeat.engines.sim import Sim
    from offbeat.engines.slot import WorkerSlot


class Reduction:
    """Who waits in which all-reduce."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self.waiting: dict[int, AllReduce] = {}

    def begin(self, i: int, w: "WorkerSlot", effect: AllReduce) -> None:
        self.waiting[i] = effect
        self._complete(effect.members)

    def lost(self, i: int) -> None:
        """The rest of a group must not wait for the dead."""
        gone = self.waiting.pop(i, None)
        groups = {effect.members for effect in self.waiting.values()} | ({gone.members} if gone else set())
        for members in sorted(groups, key=str):
            self._complete(members)

    def _complete(self, members: tuple[int, ...] | None) -> None:
        sim = self._sim
        if members is None and len(self.waiting) < sim.living:
            return  # the usual case, without looking at everybody
        everybody = range(len(sim.workers)) if members is None else members
        alive = [i for i in everybody if sim.workers[i].alive]
        if not alive or any(i not in self.waiting or self.waiting[i].members != members for i in alive):
            return
        asked = [self.waiting.pop(i) for i in alive]
        given = [a for a in asked if a.weight]
        answer = Reduced(_mean(given), sum(a.weight for a in given), tuple(alive), sim.samples)
        # A broadcast is the second half of an all-reduce.
        passes = min(len(given), 2)
        size = payload_bytes(answer.value)
        sim.bytes += passes * size * (len(alive) - 1)
        takes = passes / 2 * sim.cluster.allreduce_time(size, len(alive), asked[0].group)
        for i in alive:
            sim.workers[i].communicating += takes
        sim.push(sim.now + takes, -1, sim.REDUCED, (answer, [(i, sim.workers[i].life) for i in alive]))

    def end(self, _: int, data: tuple[Any, list[tuple[int, int]]]) -> None:
        answer, lives = data
        for i, life in lives:
            self._sim.deliver(i, life, answer)


def _mean(given: list[AllReduce]) -> Any:
    if not given:
        return None
    values, weights, group = [a.value for a in given], [a.weight for a in given], given[0].group
    return weighted_mean(values, weights) if group is None else hierarchical_mean(values, weights, group)
