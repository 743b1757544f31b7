"""The server's company: workers come, leave and are lost, some because the cluster's description says so."""

import time
from collections.abc import Callable
from math import inf

from offbeat.core.effects import Push, Send
from offbeat.core.trace import LOST
from offbeat.engines.real import messages as m
from offbeat.engines.real.gathering import Gathering
from offbeat.engines.real.peer import Peer
from offbeat.engines.real.record import Record
from offbeat.engines.real.shared_state import take_in_shared
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Came, Hub
from offbeat.engines.running.serving import Outgoing, Serving


class Company:
    """Who is there. The rule, the record and the others are told of everybody who comes and goes."""

    def __init__(self, site: Site, hub: Hub, serving: Serving, record: Record, life: int, elapsed: float) -> None:
        self._site, self._hub, self._serving, self._record = site, hub, serving, record
        self._board, self._clock = site.board, site.clock
        self.peers: dict[int, Peer] = {}
        self.begun = False  # everybody who is to begin together has come
        self.gathering: Gathering
        """Where all-reduces are formed. Set by the loop, like the next."""
        self.deliver: Callable[[Outgoing], None]
        """How what the rule says goes out."""
        first = life == 1 and not elapsed  # then losses at time 0 are still to come
        done = float(site.board.followed[0])
        self._events = [e for e in site.cluster.events if e.at > done or (e.kind == "lose" and first)]
        self._meant: set[int] = set()  # lost because the description of the cluster says so
        self._opened = time.monotonic()

    # -- they come ----------------------------------------------------------------------------------------------

    def welcome(self, came: Came) -> None:
        i = came.worker
        peer = self.peers[i] = Peer(i, goes_on=Push in self._site.solver.asks)
        self._board.alive[i] = 1
        draws = int(self._board.draws[i])
        if came.how == "begins":
            self._record.happened("begin", i, draws)
            self._record.commit()
        elif came.how == "joins":
            self._tell_others(i, m.Back(i))
            self._record.happened("join", i, draws)
            self.deliver(self._serving.join(i, self._clock.now()))
        else:
            peer.waiting = i in self._serving.waiting
        for held in self._site.feed.shares.pieces(i):
            self._hub.send(i, m.Holds(held[0], list(held[1])))
        if self.begun:
            self._hub.send(i, m.Start())

    @property
    def missing(self) -> list[int]:
        """Who is expected and has not come yet."""
        return [i for i in range(self._site.cluster.workers) if self._board.alive[i] and i not in self.peers]

    def begin(self) -> None:
        """All begin together."""
        self.begun = True
        for i in sorted(self.peers):
            self._hub.send(i, m.Start())

    # -- they go ------------------------------------------------------------------------------------------------

    def lost(self, peer: Peer) -> None:
        """A worker's line is dead: what it computed is lost, and the rule must not wait for it."""
        i = peer.rank
        batch = int(self._board.job_draw[i]) if self._board.job[i] else None
        found = self._part_with(peer)
        if (view := peer.unread_view(found)) is not None:
            self._serving.ledger.snapshot(self._clock.now(), i, view.version, self._serving.version, LOST)
        self._board.job[i] = 0
        self._go_on_without(peer)
        meant = i in self._meant
        self._meant.discard(i)
        self._hub.tell(m.WorkerGone(i, True, meant, batch))

    def left(self, peer: Peer) -> None:
        self._part_with(peer)
        self._go_on_without(peer)
        self._hub.tell(m.WorkerGone(peer.rank, False, True, None))

    def _part_with(self, peer: Peer) -> bool:
        """What it had begun, and the server does not hold, is lost; True if there was something."""
        del self.peers[peer.rank]
        self._board.alive[peer.rank] = 0
        self._hub.lost(peer.rank)
        self._record.listen()
        take_in_shared(self._serving, self._hub)  # or it would have read a version that is not there yet
        held = self._site.solver.held(self._serving.state)
        return self._record.open.settle(peer.rank, self._clock.now(), self._serving.version, LOST, held)

    def _go_on_without(self, peer: Peer) -> None:
        self._record.happened("lost", peer.rank)
        self.deliver(self._serving.lose(peer.rank, self._clock.now()))
        self.gathering.lost(peer.rank)
        self._tell_others(peer.rank, m.Gone(peer.rank))

    def _tell_others(self, rank: int, message: m.Gone | m.Back) -> None:
        """Something of a peer, which ends their waiting for one."""
        if Send in self._site.solver.asks:
            for i in sorted(self.peers):
                if i != rank:
                    self.peers[i].is_told()
                    self._hub.send(i, message)

    # -- the description of the cluster -------------------------------------------------------------------------

    @property
    def next_event(self) -> float:
        """When, by the run's clock, the description has somebody lost or joining."""
        return self._events[0].at if self._events else inf

    def follow_description(self, now: float) -> None:
        """Losses and joins that the cluster's description asks for up to now."""
        while self.next_event <= now:
            event = self._events.pop(0)
            if event.kind == "join":
                self._hub.tell(m.Wanted(event.worker, now))
            elif event.worker in self.peers:
                self._meant.add(event.worker)
                self._hub.end(event.worker)
        if not self._meant:  # another server would have to do it again
            self._board.followed[0] = now

    @property
    def still(self) -> bool:
        """Nobody does anything until it is told something, and nobody is about to be lost."""
        return not self._meant and all(peer.still for peer in self.peers.values())

    # -- signs of life ------------------------------------------------------------------------------------------

    def silent(self) -> list[tuple[int, float]]:
        """Who is waited for, and since how many seconds. Who is silent for too long is ended, like any other."""
        now, board = time.monotonic(), self._board
        found = [] if self.begun else [(i, now - self._opened) for i in self.missing]
        for peer in self.peers.values():
            signs = int(board.draws[peer.rank] + board.announced[peer.rank])
            if signs != peer.signs or peer.still or not self.begun:
                peer.signs, peer.heard = signs, now
            else:
                found.append((peer.rank, now - peer.heard))
            if peer.heard < now - self._site.options.patience_seconds:
                self._hub.tell(m.Hung(peer.rank, now - peer.heard))
                self._hub.end(peer.rank)  # its end is noticed like any other
                peer.heard = now
        return found
