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
        everybody = range(len(sim.workers)) if members is None else members
        alive = [i for i in everybody if sim.workers[i].alive]
        if not alive or any(i not in self.waiting or self.waiting[i].members != members for i in alive):
            return
        asked = [self.waiting.pop(i) for i in alive]
        values, weights, group = [a.value for a in asked], [a.weight for a in asked], asked[0].group
        mean = weighted_mean(values, weights) if group is None else hierarchical_mean(values, weights, group)
        size = payload_bytes(mean)
        sim.bytes += 2 * size * (len(alive) - 1)
        takes = sim.cluster.allreduce_time(size, len(alive), group)
        for i in alive:
            sim.workers[i].communicating += takes
        lives = [(i, sim.workers[i].life) for i in alive]
        sim.push(sim.now + takes, -1, sim.REDUCED, (Reduced(mean, tuple(alive)), lives))

    def end(self, _: int, data: tuple[Any, list[tuple[int, int]]]) -> None:
        answer, lives = data
        for i, life in lives:
            self._sim.deliver(i, life, answer)
