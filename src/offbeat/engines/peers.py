"""Messages between workers in the simulator, and atomic averages of pairs."""

from typing import TYPE_CHECKING, Any

from offbeat.core.effects import Mix, Send
from offbeat.core.reduction import payload_bytes

if TYPE_CHECKING:
    from offbeat.engines.sim import Sim
    from offbeat.engines.slot import WorkerSlot


class Peers:
    """A message is handled when it arrives, between two yields of the receiver's rule: handlers are atomic."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim

    def send(self, i: int, w: "WorkerSlot", effect: Send) -> None:
        """Not waited for: the worker goes on at once; each copy takes its own link's time."""
        sim = self._sim
        size = payload_bytes(effect.message)
        for j in effect.to:
            sim.bytes += size
            takes = sim.cluster.peer_time(i, j, size)
            sim.push(sim.now + takes, j, sim.MESSAGE, (i, effect.message))

    def arrive(self, j: int, data: tuple[int, Any]) -> None:
        sim, (sender, message) = self._sim, data
        w = sim.workers[j]
        if not w.alive:
            return
        if sim.resumable:
            w.answers.append(("message", sender, message))
        for effect in sim.solver.on_message(w.state, sender, message):
            sim.announce(effect)

    def mix(self, i: int, w: "WorkerSlot", effect: Mix) -> None:
        """There and back over the pair's link; both states change at once when the averages are made."""
        sim = self._sim
        size = payload_bytes(w.state.x)
        takes = 2 * sim.cluster.peer_time(i, effect.peer, size)
        w.communicating += takes
        sim.push(sim.now + takes, i, sim.MIXED, (w.life, effect.peer))

    def mixed(self, i: int, data: tuple[int, int]) -> None:
        sim, (life, j) = self._sim, data
        w, peer = sim.workers[i], sim.workers[j]
        if not w.alive or w.life != life:
            return
        if peer.alive and j != i:
            size = payload_bytes(w.state.x)
            sim.bytes += 2 * size
            mean = (w.state.x + peer.state.x) / 2 if i < j else (peer.state.x + w.state.x) / 2
            for slot in (w, peer):
                slot.state.x = mean
                if sim.resumable:
                    slot.answers.append(("mixed", None, mean))
        sim.deliver(i, life, None)
