"""Between workers and the server: links that take time, a queue, the time of service, and the answers."""

from collections import deque
from math import inf
from typing import Any

from offbeat.core.effects import Await, Call, Gradient, Push, Reply, View
from offbeat.core.reduction import payload_bytes
from offbeat.core.seeds import Draws
from offbeat.core.trace import CANCELLED, IN_FLIGHT, LOST
from offbeat.engines.running.serving import Outgoing
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.cores import Cores
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
        self._cores = computing.cores if computing.cores is not None and computing.cores.everything else None
        """Where the server needs a core like everybody else, nobody knows when a service will be over ..."""
        self.queue: deque[tuple[int, Letter, float]] = deque()  # ... so these wait: whose, what, since when,
        self._since: float | None = None  # and one has been served since then
        self.free = 0.0  # the server is busy until then
        self.queued = 0.0  # time messages waited for the server, summed
        self.served = 0.0  # time the server was busy

    def call(self, i: int, w: SimWorker, effect: Call | Push) -> None:
        """A worker's message sets out."""
        context = self._context
        size = payload_bytes(effect.payload)
        context.bytes += size
        self._send(i, w, size, ARRIVED, effect.payload)

    def push(self, i: int, w: SimWorker, effect: Push) -> None:
        """The same, and the worker does not wait: the answer may even be there before it goes on."""
        self.call(i, w, effect)
        self._context.advance(i, w, None)

    def wait(self, i: int, w: SimWorker, effect: Await) -> None:
        """A worker has come to where it needs the answer to its push."""
        assert w.rounds is not None
        if w.rounds.early is not None:
            self._context.advance(i, w, w.rounds.early[0])

    def _send(self, i: int, w: SimWorker, size: int, code: int, value: Any) -> None:
        """A message sets out, to the server or from it; `code` is what happens when it is there."""
        context = self._context
        if self.ways is not None:
            self.ways.send(i, w, size, code, value)
            return
        takes = 0.0 if self.instant else context.cluster.transfer_time(size)
        if takes > 0 and code == CANCELLING:  # to one that computes: nobody waits for it
            w.communicating += takes
            context.events.push(context.now + takes, i, code, (w.life, value))
        elif takes > 0:
            context.spend(i, takes, code, (w.life, value))
        else:
            self._through(i, code, (w.life, value))

    def _through(self, i: int, code: int, letter: Letter) -> None:
        """A message is where it was sent."""
        if code == ARRIVED:
            self.arrived(i, letter)
        elif code == DELIVERED:
            self.delivered(i, letter)
        else:
            self.cancelling(i, letter)

    def arrived(self, i: int, letter: Letter) -> None:
        context = self._context
        if self.service is None or context.void(i, letter[0]):
            self.done(i, letter)
            return
        if self._cores is not None:
            self.queue.append((i, letter, context.now))
            if self._since is None:
                self._serve(self._cores)
            return
        begins = self.free if self.free > context.now else context.now
        takes = self._takes(self.service)
        self.queued += begins - context.now
        self.served += takes
        self.free = begins + takes
        context.events.push(self.free, i, SERVED, letter)

    def _takes(self, service: Draws) -> float:
        takes = service.next()
        return takes / self._shards if self._shards > 1 else takes  # each has its part to do

    def _serve(self, cores: Cores) -> None:
        """The next in the queue."""
        assert self.service is not None
        i, letter, came = self.queue.popleft()
        self._since = self._context.now
        self.queued += self._since - came
        cores.spend(i, self._takes(self.service), SERVED, letter)

    def service_over(self, i: int, letter: Letter) -> None:
        """First the answer, then the next in the queue."""
        if self._cores is None or self._since is None:
            self.done(i, letter)
            return
        self.served += self._context.now - self._since
        self.done(i, letter)
        if self.queue:
            self._serve(self._cores)
        else:
            self._since = None

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
        """An answer is there. A worker that has pushed and still computes will ask for it."""
        w, (life, value) = self._context.workers[i], letter
        if w.alive and w.life == life and not w.rounds.answered_early(value):  # type: ignore[union-attr]  # it lives
            self._context.advance(i, w, value)

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
        if self._cores is not None:
            under_way += [*self._cores.under_way(), *((i, SERVED, letter) for i, letter, _ in self.queue)]
        for worker, w in enumerate(context.workers):
            early = w.rounds.early if w.alive and w.rounds is not None else None
            if early is not None and isinstance(early[0], View):  # it is there, and nothing was begun with it
                ledger.snapshot(now, worker, early[0].version, version, IN_FLIGHT)
        for worker, code, data in under_way:
            if code == DELIVERED and isinstance(data[1], View) and not context.void(worker, data[0]):
                # A snapshot under way to its worker: it has no batch yet, and counts in the conservation law.
                ledger.snapshot(now, worker, data[1].version, version, IN_FLIGHT)
            if code in (ARRIVED, SERVED) and isinstance(data[1], Gradient):
                ledger.note(now, worker, data[1], version, IN_FLIGHT)

    def saved(self) -> dict[str, Any]:
        position = None if self.service is None else self.service.position
        ways = None if self.ways is None else self.ways.saved()
        waiting = {} if self._cores is None else {"queue": list(self.queue), "since": self._since}
        counts = {"free": self.free, "queued": self.queued, "served": self.served}
        return {**counts, "service": position, "ways": ways, **waiting}

    def load(self, saved: dict[str, Any]) -> None:
        self.free, self.queued, self.served = saved["free"], saved["queued"], saved["served"]
        if self.service is not None:
            self.service.position = saved["service"]
        if self.ways is not None:
            self.ways.load(saved["ways"])
        if self._cores is not None:
            self.queue, self._since = deque(saved["queue"]), saved["since"]


def _when(event: Event) -> tuple[float, int, int]:
    return event[:3]
