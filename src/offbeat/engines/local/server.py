"""The server process: takes messages in the order of their arrival, runs the server's rule, keeps the books.

It is also where everybody meets who needs no server: workers announce what they did here, all-reduces are opened and
closed here, messages between workers are passed on. The vectors themselves go through shared memory.
"""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Iterable
from math import inf
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from offbeat.core.effects import Cancel, Gradient, Reply, Send, ServerEffect, SharedAdd, View
from offbeat.core.reduction import payload_bytes
from offbeat.core.sparse import Table, dense
from offbeat.core.trace import CANCELLED, IN_FLIGHT, LOST
from offbeat.engines.local.books import Books
from offbeat.engines.local.gather import Gathering
from offbeat.engines.local.memory import bytes_of
from offbeat.engines.local.setup import Site
from offbeat.engines.local.wire import Channel, Closed, Known, Mail

TICK = 0.1  # seconds between two signs of life
EAR = 0.01  # seconds between two looks at what workers announce


class Peer:
    """A worker as the server sees it."""

    def __init__(self, rank: int, channel: Channel, pid: int) -> None:
        self.rank, self.channel = rank, channel
        self.pidfd = os.pidfd_open(pid)
        self.known: Known = {}
        self.replies = 0
        self.last: Any = None  # the last reply
        self.waiting = False  # for a reply
        self.idle = False  # it waits for a message of a peer
        self.signs = 0  # of life, in shared memory
        self.fresh = True  # it has not begun with what it was last sent
        self.heard = time.monotonic()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)


class Server:
    """The rule's server and the run's books, in a process of its own."""

    def __init__(self, site: Site, control: Channel, nursery: Channel, saved: dict[str, Any] | None, life: int) -> None:
        self.life = life
        self.site, self.control, self.nursery = site, control, nursery
        self.arena, self.solver, self.clock = site.arena, site.solver, site.clock
        self.mail = Mail(site.codec, site.arena)
        self.books = Books(site)
        self.peers: dict[int, Peer] = {}
        self.next_samples: float = inf
        self.next_updates: float = inf
        self.deadline: float = inf
        self.arena.loss_limit[0] = -inf
        self.state: Any
        self.stopped = False
        self._next_tick = 0.0
        self._ear = EAR  # until it turns out that gradients come to the server
        self.gathering = Gathering(self)
        self._poll = select.poll()
        for channel in (control, nursery):
            self._poll.register(channel, select.POLLIN)
        self._by_fd: dict[int, Peer] = {}
        elapsed = 0.0 if saved is None else saved["now"]
        self._events = [e for e in site.cluster.events if e.at > elapsed or (e.kind == "lose" and saved is None)]
        self._meant: set[int] = set()  # lost because the description says so
        if saved is None:
            self.state = self.solver.init_server(site.initial.x, site.world)
        else:
            self.state = self.solver.load_server(saved["server"], site.initial.x, site.world)
            self.books.load(saved["counters"])
        if isinstance(getattr(self.state, "x", None), Tensor | Table):
            self.arena.shared.copy_(dense(self.state.x))
        self._elapsed = elapsed
        self._begun = False
        self.clock.start(elapsed)
        if saved is not None:  # whoever was there then is gone
            for i in range(site.cluster.workers):
                self.books.happened("lost", i)
                self.perform(self.solver.on_lost(self.state, i))

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the parent says that it is over, or is gone."""
        self._wait_for_go()
        with contextlib.suppress(Closed):
            self._gather()
            while not self._over():
                self._listen()
                self._script()
                due = min(self.deadline, self._events[0].at if self._events else inf)
                left = max(0.0, min(self._next_tick - time.monotonic(), due - self.clock.now(), self._ear))
                ready = self._poll.poll(left * 1000 + 0.5)
                for fd, _ in ready:
                    peer = self._by_fd.get(fd)
                    if peer is not None:
                        self._hear(peer)
                    elif fd == self.nursery.fileno():
                        self._welcome()
                    elif fd == self.control.fileno():
                        self._obey()
                    self._look_up()
                    if self._over():
                        break
                if time.monotonic() >= self._next_tick:
                    self._tick()
                if self.clock.now() >= self.deadline:
                    self._ask("deadline")
            self._answer_questions()

    def _over(self) -> bool:
        return self.stopped

    def _answer_questions(self) -> None:
        """The run is over; the parent may still ask, until it closes the line."""
        while True:
            self._obey()

    def _hear(self, peer: Peer) -> None:
        try:
            message = peer.channel.receive()
        except Closed:
            self.lost(peer)
            return
        assert message is not None
        peer.heard = time.monotonic()
        getattr(self, f"_on_{message[0]}")(peer, *message[1:])

    def _gather(self) -> None:
        """All begin together, and the clock with them."""
        while len(self.peers) < self.arena.alive.sum():
            self._welcome()
        self._begun = True
        self.clock.start(self._elapsed)
        for i in sorted(self.peers):
            self.tell(i, ("start",))

    def _script(self) -> None:
        """Losses and joins that the cluster's description asks for, at their time."""
        while self._events and self._events[0].at <= self.clock.now():
            event = self._events.pop(0)
            if event.kind == "join":
                self.control.send(("join", event.worker))
            elif event.worker in self.peers:
                self._meant.add(event.worker)
                self.peers[event.worker].signal(signal.SIGKILL)

    def _listen(self) -> None:
        """What workers have announced, if this solver's workers do; and is it time for the watcher?"""
        if self._ear < TICK:
            self.books.listen()
            self._look_up()

    def _look_up(self) -> None:
        """Has the watcher asked to be called at this point?"""
        if self.books.samples >= self.next_samples or self.books.updates >= self.next_updates:
            self._ask("mark")

    def _tick(self) -> None:
        """A sign of life, with what is new in the books; and a look at who is silent."""
        self._next_tick = time.monotonic() + TICK
        self.books.listen()
        self.books.trim()
        self.control.send(("tick", *self._news()))
        limit = time.monotonic() - self.site.options.patience_seconds
        for peer in self.peers.values():
            signs = int(self.arena.draws[peer.rank] + self.arena.head[peer.rank])
            if signs != peer.signs or peer.waiting or peer.idle:
                peer.signs, peer.heard = signs, time.monotonic()
        for peer in [p for p in self.peers.values() if p.heard < limit]:
            self.control.send(("hung", peer.rank, time.monotonic() - peer.heard))
            peer.signal(signal.SIGKILL)  # its end is noticed like any other
            peer.heard = time.monotonic()

    # -- the parent ---------------------------------------------------------------------------------------------

    def _news(self) -> tuple[Any, ...]:
        rows, journal = self.books.rows, self.books.journal
        news = (self.clock.now(), self.books.counters(), rows[:], journal[:])
        rows.clear()
        journal.clear()
        return news

    def _ask(self, kind: str, *details: Any) -> None:
        """Shows the state of the run to the watcher. Everything stands still meanwhile, and so does the clock."""
        since = self.clock.now()
        for peer in self.peers.values():
            peer.signal(signal.SIGSTOP)
        self.books.listen()
        self._show()
        self.control.send((kind, *details, *self._news()))
        self._wait_for_go()
        self._next_tick = time.monotonic() + TICK
        self.clock.skip(since)
        if self.stopped:
            return
        for peer in self.peers.values():
            peer.heard = time.monotonic()
            peer.signal(signal.SIGCONT)

    def _wait_for_go(self) -> None:
        while not self._obey() and not self._over():
            pass

    def _show(self) -> None:
        if SharedAdd in self.solver.asks:  # the vector itself is the state
            self.state.x, self.state.version = self.arena.shared.clone(), int(self.arena.adds.sum())
        there = [i for i in self._ranks() if self.site.shows and self.arena.shown[i]]
        shown = {i: self.arena.published(i) for i in there}
        states = {i: SimpleNamespace(x=x, memory=numbers) for i, (x, numbers) in shown.items()}
        self.arena.snapshot.copy_(dense(self.solver.parameters(self.state, states)))

    def _ranks(self) -> list[int]:
        """Who is there; or, when everybody has left, who was: what they knew is all there is."""
        return sorted(self.peers) or list(range(self.site.cluster.workers))

    def _obey(self) -> bool:
        """Carries out one request of the parent; True when it says to go on."""
        message = self.control.receive()
        assert message is not None
        kind, *details = message
        if kind == "go":
            self.next_samples, self.next_updates, self.deadline, self.arena.loss_limit[0] = details
            return True
        if kind == "stop":
            if not self.stopped:
                for peer in self.peers.values():
                    peer.signal(signal.SIGSTOP)
                self.books.listen()
                self._show()
                self.stopped = True
                self.control.send(("stopped", *self._news()))
        elif kind == "save":
            self._save()
        elif kind == "finish":
            self._finish()
        elif kind == "lr":
            self.control.send(("lr", self.solver.lr(self.state, self.books.samples)))
        elif kind == "group":
            self.control.send(("group", self._group()))
        elif kind == "lose":
            self.peers[details[0]].signal(signal.SIGKILL)
        else:
            raise TypeError(f"the server was asked to {kind!r}")
        return False

    def _save(self) -> None:
        from safetensors.torch import save

        self.books.listen()
        self._show()
        tensors: dict[str, Tensor] = {}
        tree = self.site.codec.encode(self.solver.save_server(self.state), tensors)
        own = {name: t.detach().clone().contiguous() for name, t in tensors.items()}
        self.control.send(("saved", tree, save(own), *self._news()))

    def _group(self) -> dict[str, Any] | None:
        optimizer = getattr(getattr(self.state, "opt", None), "torch", None)
        if optimizer is None:
            return None
        plain = (str, int, float, bool, type(None))
        return {k: v for k, v in optimizer.param_groups[0].items() if isinstance(v, plain)}

    # -- workers come and go ------------------------------------------------------------------------------------

    def _welcome(self) -> None:
        """The nursery hands over the line to a new worker."""
        message, fds = self.nursery.receive_with_fds(None, 1)
        assert message is not None
        rank, pid, joins = message
        peer = Peer(rank, Channel(socket.socket(fileno=fds[0])), pid)
        peer.known = {"x0": self.site.initial.x}
        self.peers[rank] = self._by_fd[peer.channel.fileno()] = peer
        self._poll.register(peer.channel, select.POLLIN)
        self.arena.alive[rank] = 1
        if not joins:
            self.books.happened("begin", rank, int(self.arena.draws[rank]))
        else:
            self._tell_others(rank, "back")
            self.books.happened("join", rank, int(self.arena.draws[rank]))
            self.perform(self.solver.on_join(self.state, rank))
        if self._begun:
            self.tell(rank, ("start",))

    def lost(self, peer: Peer) -> None:
        """A worker's line is dead: what it computed is lost, and the rule must not wait for it."""
        self._part_with(peer)
        self.books.listen()
        if not self.books.settle(peer.rank, self._version, LOST) and peer.fresh and isinstance(peer.last, View):
            self.books.snapshot(peer.rank, peer.last.version, self._version, LOST)
        self.arena.job[peer.rank] = 0
        self._without(peer)
        meant = peer.rank in self._meant
        self._meant.discard(peer.rank)
        self.control.send(("lost", peer.rank, meant, any(e.kind == "join" for e in self._events)))

    def _on_left(self, peer: Peer) -> None:
        self._part_with(peer)
        self.books.listen()
        self.books.settle(peer.rank, self._version, LOST)
        self._without(peer)
        self.control.send(("left", peer.rank, True, any(e.kind == "join" for e in self._events)))

    def _part_with(self, peer: Peer) -> None:
        del self.peers[peer.rank], self._by_fd[peer.channel.fileno()]
        self._poll.unregister(peer.channel)
        peer.close()
        self.arena.alive[peer.rank] = 0
        self.arena.unread[:, :, peer.rank] = 0

    def _tell_others(self, rank: int, what: str) -> None:
        if Send in self.solver.asks:
            for i in sorted(self.peers):
                if i != rank:
                    self.tell(i, (what, rank))

    def tell(self, i: int, message: tuple[Any, ...]) -> None:
        """A word to worker i; if it is dead, that is noticed when its line is read."""
        peer = self.peers.get(i)
        if peer is not None:
            peer.waiting, peer.heard = False, time.monotonic()
            with contextlib.suppress(Closed):
                peer.channel.send(message)

    def _without(self, peer: Peer) -> None:
        self.books.happened("lost", peer.rank)
        self.perform(self.solver.on_lost(self.state, peer.rank))
        self.gathering.lost(peer.rank)
        self._tell_others(peer.rank, "gone")

    # -- messages of workers ------------------------------------------------------------------------------------

    def _on_call(self, peer: Peer, tree: Any, parts: list[Any], sent: float, size: int, works: list[int]) -> None:
        begun = self.clock.now()
        payload = self.mail.unpack(tree, parts, self.arena.push_slot(peer.rank), peer.known)
        self.books.bytes += size
        for work in works:
            self.books.happened("work", peer.rank, work)
        self.books.happened("call", peer.rank)
        peer.waiting, peer.fresh = True, False
        if isinstance(payload, Gradient):
            payload.work = self.books.samples
            self._ear = TICK
        self.perform(self.solver.on_call(self.state, peer.rank, payload))
        self.books.queued += max(0.0, begun - sent)
        self.books.served += self.clock.now() - begun
        if self.site.fault("kill", self.books.updates, None, self.life):
            os.kill(os.getpid(), signal.SIGKILL)
        while self.site.fault("hang", self.books.updates, None, self.life):
            signal.pause()

    def perform(self, effects: Iterable[ServerEffect]) -> None:
        """Runs the server's rule to its end, then sends what it said."""
        outgoing: list[Reply | Cancel] = []
        for effect in effects:
            if type(effect) is Reply or type(effect) is Cancel:
                outgoing.append(effect)
            else:
                self.books.announce(effect)
        for message in outgoing:
            peer = self.peers.get(message.worker)
            if peer is None:
                continue  # lost meanwhile
            if type(message) is Reply:
                self._reply(peer, message.value)
            else:
                self.arena.cancel[peer.rank] = peer.replies + 1

    def _reply(self, peer: Peer, value: Any) -> None:
        tree, parts, peer.known = self.mail.pack_reply(value, self.arena.pull_slot(peer.rank), peer.known)
        peer.last, peer.replies, peer.waiting, peer.fresh = value, peer.replies + 1, False, True
        self.books.bytes += min(payload_bytes(value), bytes_of(parts))  # less, where only rows went
        peer.heard = time.monotonic()
        with contextlib.suppress(Closed):  # its end is noticed when its line is read
            peer.channel.send(("reply", tree, parts))

    def _on_cancelled(self, peer: Peer) -> None:
        self.books.happened("cancelled", peer.rank)
        self.books.settle(peer.rank, self._version, CANCELLED)
        peer.fresh = False

    def _on_loss(self, peer: Peer, loss: float) -> None:
        if not loss <= self.arena.loss_limit[0]:
            self._ask("loss", loss)
        with contextlib.suppress(Closed):
            peer.channel.send(("verdict",))

    def _on_failed(self, peer: Peer, why: str) -> None:
        self.control.send(("failed", peer.rank, why))

    def _on_reduce(self, peer: Peer, *asked: Any) -> None:
        peer.waiting = True
        self.gathering.begin(peer.rank, *asked)

    def _on_summed(self, peer: Peer, at: int, k: int, *rows: Any) -> None:
        peer.waiting = True
        self.gathering.summed(at, k, *rows)

    def _on_send(self, peer: Peer, to: list[int], k: int, tree: Any, parts: list[Any], size: int) -> None:
        for j in to:
            self.books.bytes += size
            receiver = self.peers.get(j)
            waiting = receiver is not None and receiver.waiting
            self.tell(j, ("message", peer.rank, k, tree, parts))
            if receiver is not None:
                receiver.waiting, receiver.idle = waiting, False

    def _on_idle(self, peer: Peer) -> None:
        peer.idle = True

    # -- the end ------------------------------------------------------------------------------------------------

    @property
    def _version(self) -> int | None:
        return getattr(self.state, "version", None)

    def _finish(self) -> None:
        """Closes the books: one row for every gradient that is still under way. The workers stand still."""
        self.books.listen()
        for worker, g in self.solver.held(self.state):
            self.books.note(worker, g, self._version, IN_FLIGHT, None)
        for i, peer in sorted(self.peers.items()):
            arrived = False
            with contextlib.suppress(Closed):
                while (message := peer.channel.receive(0)) is not None:
                    if message[0] == "call":
                        arrived = True
                        payload = self.mail.unpack(message[1], message[2], self.arena.push_slot(i), peer.known)
                        if isinstance(payload, Gradient):
                            self.books.note(i, payload, self._version, IN_FLIGHT, None)
            if self.books.settle(i, self._version, IN_FLIGHT) or arrived:
                continue
            if peer.fresh and isinstance(peer.last, View):
                self.books.snapshot(i, peer.last.version, self._version, IN_FLIGHT)
        for i in range(self.site.cluster.workers):  # those we have not even met
            self.books.settle(i, self._version, IN_FLIGHT)
        self._show()
        self.control.send(("finished", *self._news()))
