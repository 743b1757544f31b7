"""Messages between workers in the simulator, and atomic averages of pairs."""

from math import inf
from typing import Any

from offbeat.core.effects import Mix, Send, Wait
from offbeat.core.reduction import payload_bytes
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import DELIVERED, MESSAGE, MIXED
from offbeat.engines.sim.sim_worker import SimWorker


class Peers:
    """A message is handled when it arrives, between two yields of the receiver's rule: handlers are atomic."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.latest: dict[tuple[int, int], float] = {}  # when the last message of a sender reaches a receiver
        self.waiting: dict[int, int] = {}  # worker -> the peer whose message it misses

    def send(self, i: int, effect: Send) -> tuple[int, ...]:
        """Not waited for: the worker goes on at once; each copy takes its own link's time and overtakes no other."""
        context = self._context
        size = payload_bytes(effect.message)
        there = tuple(j for j in effect.to if context.workers[j].alive)
        for j in there:
            context.bytes += size
            takes = context.cluster.peer_time(i, j, size)
            before = self.latest.get((i, j), -inf)
            if takes == 0 and before < context.now:
                self.arrive(j, (i, effect.message))
                continue
            at = max(context.now + takes, before)
            self.latest[i, j] = at
            context.events.push(at, j, MESSAGE, (i, effect.message))
        return there

    def arrive(self, j: int, data: tuple[int, Any]) -> None:
        context, (sender, message) = self._context, data
        w = context.workers[j]
        if not w.alive:
            return
        assert w.rounds is not None
        for effect in w.rounds.hear(sender, message):
            context.ledger.announce(effect, context.now)
        if j in self.waiting:
            del self.waiting[j]
            context.events.push(context.now, j, DELIVERED, (w.life, True))

    def wait(self, i: int, w: SimWorker, effect: Wait) -> None:
        if self._gone(effect.peer, i):
            self._context.events.push(self._context.now, i, DELIVERED, (w.life, False))
        else:
            self.waiting[i] = effect.peer

    def lost(self, i: int) -> None:
        """Nobody waits for the dead, once what they sent has arrived."""
        self.waiting.pop(i, None)
        for j in sorted(j for j, peer in self.waiting.items() if peer == i and self._gone(i, j)):
            del self.waiting[j]
            self._context.events.push(self._context.now, j, DELIVERED, (self._context.workers[j].life, False))

    def _gone(self, peer: int, receiver: int) -> bool:
        """The peer is lost, and no message of its is under way to the receiver."""
        return not self._context.workers[peer].alive and self.latest.get((peer, receiver), -inf) <= self._context.now

    def mix(self, i: int, w: SimWorker, effect: Mix) -> None:
        """There and back over the pair's link; both states change at once when the averages are made."""
        context = self._context
        size = payload_bytes(w.state.x)
        context.spend(i, 2 * context.cluster.peer_time(i, effect.peer, size), MIXED, (w.life, effect.peer))

    def mixed(self, i: int, data: tuple[int, int]) -> None:
        context, (life, j) = self._context, data
        w, peer = context.workers[i], context.workers[j]
        if not w.alive or w.life != life:
            return
        if peer.alive and j != i:
            context.bytes += 2 * payload_bytes(w.state.x)
            mean = (w.state.x + peer.state.x) / 2
            for one in (w, peer):
                assert one.rounds is not None
                one.rounds.mixed(mean)
        context.deliver(i, life, None)

    def saved(self) -> dict[str, Any]:
        return {"latest": self.latest, "waiting": self.waiting}

    def load(self, saved: dict[str, Any]) -> None:
        self.latest, self.waiting = saved["latest"], saved["waiting"]
