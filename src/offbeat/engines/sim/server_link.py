"""Between workers and the server: links that take time, a queue, the time of service, and the answers."""

from math import inf
from typing import Any

from offbeat.core.effects import Call, Gradient, Reply, View
from offbeat.core.reduction import payload_bytes
from offbeat.core.seeds import Draws
from offbeat.core.trace import CANCELLED, IN_FLIGHT, LOST
from offbeat.engines.running.serving import Outgoing
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.event_heap import ARRIVED, CANCELLING, DELIVERED, SERVED, Event
from offbeat.engines.sim.sim_worker import SimWorker
from offbeat.engines.sim.ways import Letter, Ways


class ServerLink:
    """Messages are served one at a time, in the order of their arrival. What takes no time happens at once."""

    def __init__(self, context: Context, computing: Computing) -> None:
        self._context, self._computing = context, computing
        cluster = context.cluster
        self.instant = cluster.transfer_time(10**18) == 0 and cluster.server.bandwidth == inf
        """Messages take no time, whatever their size."""
        self.ways = Ways(context, self._through) if cluster.server.bandwidth < inf else None
        """The server's own link, where it is not wide enough for everything."""
        self._shards = cluster.server.shards
        self.service: Draws | None = None
        if cluster.service.mean > 0:
            draw = cluster.service.sample
            self.service = Draws(draw, seed=context.seed, stream="service", source=0, dial=context.dial)
        self.free = 0.0  # the server is busy until then
        self.queued = 0.0  # time messages waited for the server, summed
        self.served = 0.0  # time the server was busy

    def call(self, i: int, w: SimWorker, effect: Call) -> None:
        """A worker's message sets out."""
        context = self._context
        size = payload_bytes(effect.payload)
        context.bytes += size
        self._send(i, w, size, ARRIVED, effect.payload)

    def _send(self, i: int, w: SimWorker, size: int, code: int, value: Any) -> None:
        """A message sets out, to the server or from it; `code` is what happens when it is there."""
        context = self._context
        if self.ways is not None:
            self.ways.send(i, w, size, code, value)
            return
        takes = 0.0 if self.instant else context.cluster.transfer_time(size)
        if takes > 0:
            w.communicating += takes
            context.events.push(context.now + takes, i, code, (w.life, value))
        else:
            self._through(i, code, (w.life, value))

    def _through(self, i: int, code: int, letter: Letter) -> None:
        """A message is where it was sent."""
        if code == ARRIVED:
            self.arrived(i, letter)
        elif code == DELIVERED:
            self._context.deliver(i, *letter)
        else:
            self.cancelling(i, letter)

    def arrived(self, i: int, letter: Letter) -> None:
        context = self._context
        if self.service is None or context.void(i, letter[0]):
            self.done(i, letter)
            return
        begins = self.free if self.free > context.now else context.now
        takes = self.service.next()
        if self._shards > 1:
            takes /= self._shards  # each has its part to do
        self.queued += begins - context.now
        self.served += takes
        self.free = begins + takes
        context.events.push(self.free, i, SERVED, letter)

    def done(self, i: int, letter: Letter) -> None:
        """The server has served a message: now its rule sees it."""
        context, (life, payload) = self._context, letter
        if not context.void(i, life):
            self.send(context.serving.call(i, payload, context.now))
        elif isinstance(payload, Gradient):
            context.ledger.note(context.now, i, payload, context.serving.version, LOST)

    def send(self, outgoing: Outgoing) -> None:
        """What the server's rule has said sets out to the workers."""
        context = self._context
        for message in outgoing:
            i, to = message.worker, context.workers[message.worker]
            replying = type(message) is Reply
            value = message.value if type(message) is Reply else None
            size = payload_bytes(value)
            context.bytes += size
            self._send(i, to, size, DELIVERED if replying else CANCELLING, value)

    def delivered(self, i: int, letter: Letter) -> None:
        self._context.deliver(i, *letter)

    def cancelling(self, i: int, letter: Letter) -> None:
        w = self._context.workers[i]
        if not self._context.void(i, letter[0]) and w.job is not None:
            self._computing.drop(i, CANCELLED)
            self._context.advance(i, w, None)

    def note_under_way(self) -> None:
        """At the end: one row for every gradient, and every snapshot, that is on a link or with the server."""
        context = self._context
        now, ledger, version = context.now, context.ledger, context.serving.version
        under_way = [(worker, code, data) for _, worker, _, code, data in sorted(context.events.heap, key=_when)]
        if self.ways is not None:
            under_way += self.ways.under_way()
        for worker, code, data in under_way:
            if code == DELIVERED and isinstance(data[1], View) and not context.void(worker, data[0]):
                # A snapshot under way to its worker: it has no batch yet, and counts in the conservation law.
                ledger.snapshot(now, worker, data[1].version, version, IN_FLIGHT)
            if code in (ARRIVED, SERVED) and isinstance(data[1], Gradient):
                ledger.note(now, worker, data[1], version, IN_FLIGHT)

    def saved(self) -> dict[str, Any]:
        position = None if self.service is None else self.service.position
        ways = None if self.ways is None else self.ways.saved()
        return {"free": self.free, "queued": self.queued, "served": self.served, "service": position, "ways": ways}

    def load(self, saved: dict[str, Any]) -> None:
        self.free, self.queued, self.served = saved["free"], saved["queued"], saved["served"]
        if self.service is not None:
            self.service.position = saved["service"]
        if self.ways is not None:
            self.ways.load(saved["ways"])


def _when(event: Event) -> tuple[float, int, int]:
    return event[:3]
