"""Messages between workers in the simulator, and atomic averages of pairs."""

from math import inf
from typing import TYPE_CHECKING, Any

from offbeat.core.effects import Mix, Send, Wait
from offbeat.core.reduction import payload_bytes

if TYPE_CHECKING:
    from offbeat.engines.sim import Sim
    from offbeat.engines.slot import WorkerSlot


class Peers:
    """A message is handled when it arrives, between two yields of the receiver's rule: handlers are atomic."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self.latest: dict[tuple[int, int], float] = {}  # when the last message of a sender reaches a receiver
        self.waiting: dict[int, int] = {}  # worker -> the peer whose message it misses

    def send(self, i: int, effect: Send) -> tuple[int, ...]:
        """Not waited for: the worker goes on at once; each copy takes its own link's time and overtakes no other."""
        sim = self._sim
        size = payload_bytes(effect.message)
        there = tuple(j for j in effect.to if sim.workers[j].alive)
        for j in there:
            sim.bytes += size
            takes = sim.cluster.peer_time(i, j, size)
            before = self.latest.get((i, j), -inf)
            if takes == 0 and before < sim.now:
                self.arrive(j, (i, effect.message))
                continue
            at = max(sim.now + takes, before)
            self.latest[i, j] = at
            sim.push(at, j, sim.MESSAGE, (i, effect.message))
        return there

    def arrive(self, j: int, data: tuple[int, Any]) -> None:
        sim, (sender, message) = self._sim, data
        w = sim.workers[j]
        if not w.alive:
            return
        if sim.resumable:
            w.answers.append(("message", sender, message))
        for effect in sim.solver.on_message(w.state, sender, message):
            sim.announce(effect)
        if j in self.waiting:
            del self.waiting[j]
            sim.push(sim.now, j, sim.DELIVERED, (w.life, True))

    def wait(self, i: int, w: "WorkerSlot", effect: Wait) -> None:
        if self._gone(effect.peer, i):
            self._sim.push(self._sim.now, i, self._sim.DELIVERED, (w.life, False))
        else:
            self.waiting[i] = effect.peer

    def lost(self, i: int) -> None:
        """Nobody waits for the dead, once what they sent has arrived."""
        self.waiting.pop(i, None)
        for j in sorted(j for j, peer in self.waiting.items() if peer == i and self._gone(i, j)):
            del self.waiting[j]
            self._sim.push(self._sim.now, j, self._sim.DELIVERED, (self._sim.workers[j].life, False))

    def _gone(self, peer: int, receiver: int) -> bool:
        """The peer is lost, and no message of its is under way to the receiver."""
        return not self._sim.workers[peer].alive and self.latest.get((peer, receiver), -inf) <= self._sim.now

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
            sim.bytes += 2 * payload_bytes(w.state.x)
            mean = (w.state.x + peer.state.x) / 2
            for slot in (w, peer):
                slot.state.x = mean
                if sim.resumable:
                    slot.answers.append(("mixed", None, mean))
        sim.deliver(i, life, None)
