"""The server's loop: takes messages in the order of their arrival, runs the server's rule, writes everything down.

It is also where everybody meets who needs no server: workers announce what they did here, all-reduces are opened and
closed here, messages between workers are passed on.
"""

import time
from collections.abc import Callable
from typing import Any

from offbeat.core.effects import Gradient, Reply, SharedAdd
from offbeat.core.shares import Shares
from offbeat.core.sparse import dense
from offbeat.core.trace import CANCELLED
from offbeat.engines.real import messages as m
from offbeat.engines.real.attendance import Attendance
from offbeat.engines.real.checkpoint import Checkpoint, unpack
from offbeat.engines.real.closing import close_books
from offbeat.engines.real.company import Company
from offbeat.engines.real.gathering import Gathering, Meeting
from offbeat.engines.real.peer import Peer
from offbeat.engines.real.rearranging import rearrange
from offbeat.engines.real.record import Record
from offbeat.engines.real.resting import take_checkpoint
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Came, Closed, Heard, Hub, Ordered, Said, WentAway
from offbeat.engines.running.ledger import Ledger
from offbeat.engines.running.serving import Outgoing, Serving

TICK = 0.1  # seconds between two signs of life
LISTEN = 0.01  # seconds between two looks at what workers announce


class ServerLoop:
    """The rule's server and the run's record, wherever it runs."""

    def __init__(
        self,
        site: Site,
        hub: Hub,
        saved: Checkpoint | None,
        life: int,
        totals: m.Totals | None = None,
        lodge: Callable[[Any], Any] = lambda x: x,
    ) -> None:
        """`lodge`: what stands for a vector of the server's that does not stay in this process."""
        totals = totals or m.Totals()
        self.site, self.hub, self.life = site, hub, life
        self.board, self.solver, self.clock = site.board, site.solver, site.clock
        self.ledger = Ledger(gap=site.options.gap)
        self.handling: tuple[int, Any] | None = None  # the last message of a worker, and whose it is
        site.feed.shares = Shares(saved.held if saved is not None else ())
        state, there = self._state(saved, lodge)
        self.serving = Serving(self.solver, state, self.ledger, there)
        if saved is not None:
            self.serving.waiting = set(saved.waiting)
            self.ledger.load(saved.counters)
        self.record = Record(site, hub, self.ledger, totals, saved)
        self.company = Company(site, hub, self.serving, self.record, life, totals.elapsed)
        self.peers = self.company.peers
        self.attendance = Attendance(site, hub, self.serving, self.record, self.peers)
        self.attendance.save, self.attendance.finish = lambda: take_checkpoint(self), lambda: close_books(self)
        self.attendance.resumed, self.attendance.rearrange = self.go_on, lambda order: rearrange(self, order)
        self.gathering = self.company.gathering = Gathering(self.board, site.cluster.workers, self._meet)
        self.company.deliver = self._deliver
        self.summing = 0  # all-reduces whose sum is being made
        self.leaving: set[int] = set()  # who is to leave at the end of its round
        self.put_off: list[Said] = []  # what workers have asked for while everybody is to rest
        self._going_on = False
        self._next_tick = self._next_look = 0.0
        self._look_every = LISTEN  # until it turns out that gradients come to the server
        self._elapsed = totals.elapsed
        self.clock.start(self._elapsed)

    def _state(self, saved: Checkpoint | None, lodge: Callable[[Any], Any]) -> tuple[Any, list[int]]:
        x0, world = lodge(self.site.initial.x), self.site.world
        if saved is None:
            state, there = self.solver.init_server(x0, world), list(world.present)
        else:
            tree = unpack(self.site.codec, saved.server, saved.tensors, lodge)
            state, there = self.solver.load_server(tree, x0, world), saved.there
        if SharedAdd in self.solver.asks:
            self.hub.share(dense(state.x), state.version)
        return state, there

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the control says that it is over, or is gone."""
        attendance = self.attendance
        try:
            attendance.wait_for_go()
            self._assemble()
            attendance.look_up()  # a new server may begin where the watcher wants to look
            while not attendance.stopped:
                self.company.follow_description(self.clock.now())
                due = min(attendance.marks.deadline, self.company.next_event) - self.clock.now()
                clock = min(self._next_tick, self._next_look) - time.monotonic()
                heard = self.hub.next(max(0.0, min(due, clock)))
                if heard is not None:
                    self.see_to(heard)
                if heard is None or time.monotonic() >= self._next_look:
                    self._look()
                attendance.look_up()
                self.tick()
            while True:
                attendance.obey(self.hub.next_order())
        except Closed:
            pass  # the control is gone, and with it the run

    def _assemble(self) -> None:
        """All begin together, and the clock with them. What the control asks for meanwhile is seen to after that."""
        orders = []
        while self.company.missing:
            heard = self.hub.next(TICK)
            if isinstance(heard, Ordered):
                orders.append(heard)
            elif heard is not None:
                self.see_to(heard)
            self.tick()
        self.clock.start(self._elapsed)
        self.company.begin()
        for order in orders:
            self.see_to(order)

    def see_to(self, heard: Heard) -> None:
        if isinstance(heard, Said):
            peer = self.peers.get(heard.worker)
            if peer is None:
                return
            peer.heard = time.monotonic()
            rests = self.board.rest[0] and heard.worker not in self.leaving
            if rests and isinstance(heard.message, m.Called | m.Reducing):
                peer.waiting = True
                self.put_off.append(heard)
            else:
                self._hear(peer, heard.message)
        elif isinstance(heard, Came):
            self.company.welcome(heard)
        elif isinstance(heard, WentAway):
            if heard.worker in self.peers:
                self._drop(heard.worker)
                self.company.lost(self.peers[heard.worker])
        else:
            self.attendance.obey(heard.order)

    def _hear(self, peer: Peer, message: m.FromWorker) -> None:
        self.handling = peer.rank, message
        match message:
            case m.Called():
                self._on_call(peer, message)
            case m.Awaits(heard):
                peer.busy = heard != peer.replies
            case m.Reducing():
                peer.waiting = True
                self.gathering.come(peer.rank, message)
            case m.Post():
                self._on_post(peer, message)
            case m.WaitsForPeer(heard):
                peer.idle = heard == peer.told
            case m.Resting():
                peer.resting = True
            case m.Suspicious(loss):
                peer.suspicious, peer.suspected = loss, True
                if not self.board.rest[0]:
                    self._clear_suspicion(peer)
            case m.GaveUp():
                self.record.happened("cancelled", peer.rank)
                self.record.open.settle(peer.rank, self.clock.now(), self.serving.version, CANCELLED)
                peer.fresh = False
                self.record.commit()
            case m.Left():
                self._drop(peer.rank)
                self.company.left(peer)
            case m.Failed(why):
                self.hub.tell(m.ProcessFailed(peer.rank, why))
            case _:
                self.hub.other(peer.rank, message)

    def go_on(self) -> None:
        """After a rest: what was put off is seen to, unless everything stands still for the watcher."""
        if self._going_on:
            return  # it comes back to that by itself
        self._going_on = True
        try:
            self._see_to_what_was_put_off()
        finally:
            self._going_on = False

    def _see_to_what_was_put_off(self) -> None:
        while not self.attendance.paused:
            suspects = [peer for peer in self.peers.values() if peer.suspicious is not None]
            if suspects:
                self._clear_suspicion(suspects[0])
            elif self.put_off:
                self.see_to(self.put_off.pop(0))
                self.attendance.look_up()
            else:
                return

    def tick(self) -> None:
        """Now and then: a sign of life, and a look at who is silent."""
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + TICK
        self.record.listen()
        self.record.open.trim()
        self.hub.tell(m.Tick(self.clock.now(), self.company.silent()))

    def _look(self) -> None:
        """At what workers have announced, where they do."""
        self._next_look = time.monotonic() + self._look_every
        if self._look_every < TICK:
            self.record.listen()
            if self.ledger.updates:
                self._strike()

    def _drop(self, rank: int) -> None:
        """What was put off of a worker that is gone is not seen to any more."""
        self.put_off = [said for said in self.put_off if said.worker != rank]

    # -- messages of workers ------------------------------------------------------------------------------------

    def _answer(self, i: int, message: m.Met | m.LossSeen) -> None:
        """What worker i waits for."""
        peer = self.peers.get(i)
        if peer is not None:
            peer.waiting, peer.heard = False, time.monotonic()
            self.hub.send(i, message)

    def _on_call(self, peer: Peer, message: m.Called) -> None:
        begun, record = self.clock.now(), self.record
        record.listen()  # what it announced before comes first
        record.bytes += message.size
        for work in message.works:
            record.happened("work", peer.rank, work)
        record.happened("call", peer.rank)
        peer.waiting, peer.fresh = True, False
        if isinstance(message.payload, Gradient):
            message.payload.work = self.ledger.samples
            self._look_every = TICK
        outgoing = self.serving.call(peer.rank, message.payload, begun)
        record.queued += max(0.0, begun - message.sent)
        self._deliver(outgoing)
        record.served += self.clock.now() - begun
        self._strike()

    def _strike(self) -> None:
        """For tests: what is to befall this server after so many updates."""
        if self.site.server_fault("kill", self.ledger.updates, self.life):
            self.hub.die()
        if self.site.server_fault("hang", self.ledger.updates, self.life):
            self.hub.hang()

    def _deliver(self, outgoing: Outgoing) -> None:
        """Sends what the server's rule has said, once all of it is written down."""
        self.record.commit()
        for said in outgoing:
            peer = self.peers.get(said.worker)
            if peer is None:
                continue  # lost meanwhile
            if type(said) is Reply:
                peer.is_answered(said.value)
                self.record.bytes += self.hub.answer(peer.rank, said.value)
            else:
                self.board.cancel[peer.rank] = peer.replies + 1

    def _on_post(self, peer: Peer, post: m.Post) -> None:
        for j in post.to:
            self.record.bytes += post.size
            receiver = self.peers.get(j)
            if receiver is not None:
                receiver.is_told()
                self.hub.forward(peer.rank, j, post.letter)

    def _clear_suspicion(self, peer: Peer) -> None:
        """The watcher sees the loss, unless it has allowed so much by now; then the worker goes on."""
        loss, peer.suspicious = peer.suspicious, None
        if loss is not None and not loss <= self.board.loss_limit[0]:
            self.attendance.ask(m.SuspectLoss(self.clock.now(), loss, peer.rank, int(self.board.job_draw[peer.rank])))
        peer.suspected = False
        if self.peers.get(peer.rank) is peer:  # and no other life of it
            self._answer(peer.rank, m.LossSeen())

    def _meet(self, meeting: Meeting) -> None:
        self.summing += 1
        self.hub.sum_up(meeting, self._met)

    def _met(self, meeting: Meeting, mean: Any, nbytes: int) -> None:
        """The sum is made: everybody may go on, with a work clock that all agree on."""
        self.summing -= 1
        self.record.listen()
        self.record.bytes += min(len(meeting.given), 2) * nbytes * (len(meeting.alive) - 1)
        met = m.Met(mean, meeting.size, sum(meeting.weights), meeting.alive, self.ledger.samples)
        for i in meeting.alive:
            self._answer(i, met)
