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

from offbeat.core.effects import Cancel, Gradient, Reply, ServerEffect, View
from offbeat.core.reduction import payload_bytes
from offbeat.core.trace import APPLIED, CANCELLED, IN_FLIGHT, LOST
from offbeat.engines.local.books import Books
from offbeat.engines.local.setup import Site
from offbeat.engines.local.wire import Channel, Closed, Mail

TICK = 0.1  # seconds between two signs of life


class Peer:
    """A worker as the server sees it."""

    def __init__(self, rank: int, channel: Channel, pid: int) -> None:
        self.rank, self.channel = rank, channel
        self.pidfd = os.pidfd_open(pid)
        self.known: dict[str, Tensor] = {}
        self.replies = 0
        self.last: Any = None  # the last reply
        self.waiting = False  # for a reply
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
        self._poll = select.poll()
        for channel in (control, nursery):
            self._poll.register(channel, select.POLLIN)
        self._by_fd: dict[int, Peer] = {}
        elapsed = 0.0
        if saved is None:
            self.state = self.solver.init_server(site.initial.x, site.world)
        else:
            self.state = self.solver.load_server(saved["server"], site.initial.x, site.world)
            self.books.load(saved["counters"])
            elapsed = saved["now"]
        if isinstance(getattr(self.state, "x", None), Tensor):
            self.arena.shared.copy_(self.state.x)
        self.clock.start(elapsed)

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the parent says that it is over, or is gone."""
        self._wait_for_go()
        with contextlib.suppress(Closed):
            while not self._over():
                left = max(0.0, min(self._next_tick - time.monotonic(), self.deadline - self.clock.now()))
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

    def _look_up(self) -> None:
        """Has the watcher asked to be called at this point?"""
        if self.books.samples >= self.next_samples or self.books.updates >= self.next_updates:
            self._ask("mark")

    def _tick(self) -> None:
        """A sign of life, with what is new in the books; and a look at who is silent."""
        self._next_tick = time.monotonic() + TICK
        self.control.send(("tick", *self._news()))
        limit = time.monotonic() - self.site.options.patience_seconds
        for peer in [p for p in self.peers.values() if not p.waiting and p.heard < limit]:
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
        states = {i: SimpleNamespace(x=self.arena.published(i)) for i in sorted(self.peers)}
        self.arena.snapshot.copy_(self.solver.parameters(self.state, states))

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
        if joins:
            self.books.happened("join", rank, int(self.arena.draws[rank]))
            self.perform(self.solver.on_join(self.state, rank))

    def lost(self, peer: Peer) -> None:
        """A worker's line is dead: what it computed is lost, and the rule must not wait for it."""
        self._part_with(peer)
        if self.arena.job[peer.rank]:
            self.books.unfinished(peer.rank, self._version, LOST)
        elif peer.fresh and isinstance(peer.last, View):
            self.books.snapshot(peer.rank, peer.last.version, self._version, LOST)
        self.arena.job[peer.rank] = 0
        self._without(peer)
        self.control.send(("lost", peer.rank))

    def _on_left(self, peer: Peer) -> None:
        self._part_with(peer)
        self._without(peer)
        self.control.send(("left", peer.rank))

    def _part_with(self, peer: Peer) -> None:
        del self.peers[peer.rank], self._by_fd[peer.channel.fileno()]
        self._poll.unregister(peer.channel)
        peer.close()

    def _without(self, peer: Peer) -> None:
        self.books.happened("lost", peer.rank)
        self.perform(self.solver.on_lost(self.state, peer.rank))

    # -- messages of workers ------------------------------------------------------------------------------------

    def _on_call(self, peer: Peer, tree: Any, parts: list[Any], sent: float, size: int) -> None:
        begun = self.clock.now()
        payload = self.mail.unpack(tree, parts, self.arena.push_slot(peer.rank), peer.known)
        self.books.bytes += size
        self.books.happened("call", peer.rank)
        peer.waiting, peer.fresh = True, False
        if isinstance(payload, Gradient):
            payload.work = self.books.samples
        self.perform(self.solver.on_call(self.state, peer.rank, payload))
        self.books.queued += max(0.0, begun - sent)
        self.books.served += self.clock.now() - begun
        if self.site.fault("kill", self.books.updates, None, self.life):
            os.kill(os.getpid(), signal.SIGKILL)

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
        tensors: dict[str, Tensor] = {}
        tree = self.site.codec.encode(value, tensors)
        parts = self.arena.write(self.arena.pull_slot(peer.rank), tensors)
        peer.known = {"x0": self.site.initial.x, **{f"r.{name}": t for name, t in tensors.items()}}
        peer.last, peer.replies, peer.waiting, peer.fresh = value, peer.replies + 1, False, True
        self.books.bytes += payload_bytes(value)
        peer.heard = time.monotonic()
        with contextlib.suppress(Closed):  # its end is noticed when its line is read
            peer.channel.send(("reply", tree, parts))

    def _on_cancelled(self, peer: Peer) -> None:
        self.books.happened("cancelled", peer.rank)
        self.books.unfinished(peer.rank, self._version, CANCELLED)
        peer.fresh = False

    def _on_loss(self, peer: Peer, loss: float) -> None:
        if not loss <= self.arena.loss_limit[0]:
            self._ask("loss", loss)
        with contextlib.suppress(Closed):
            peer.channel.send(("verdict",))

    def _on_failed(self, peer: Peer, why: str) -> None:
        self.control.send(("failed", peer.rank, why))

    def _on_applied(self, peer: Peer, *values: Any) -> None:
        *row, work = values
        self.books.happened("applied", peer.rank, work)
        self.books.row(*row, outcome=APPLIED)

    def _on_stepped(self, peer: Peer) -> None:
        self.books.stepped()

    # -- the end ------------------------------------------------------------------------------------------------

    @property
    def _version(self) -> int | None:
        return getattr(self.state, "version", None)

    def _finish(self) -> None:
        """Closes the books: one row for every gradient that is still under way. The workers stand still."""
        for i, peer in sorted(self.peers.items()):
            arrived = None
            with contextlib.suppress(Closed):
                while (message := peer.channel.receive(0)) is not None:
                    if message[0] == "call":
                        arrived = self.mail.unpack(message[1], message[2], self.arena.push_slot(i), peer.known)
                    elif message[0] in ("applied", "stepped"):
                        self._hear_late(peer, message)
            if isinstance(arrived, Gradient):
                self.books.note(i, arrived, self._version, IN_FLIGHT, None)
            elif self.arena.job[i]:
                self.books.unfinished(i, self._version, IN_FLIGHT)
            elif arrived is None and peer.fresh and isinstance(peer.last, View):
                self.books.snapshot(i, peer.last.version, self._version, IN_FLIGHT)
        for worker, g in self.solver.held(self.state):
            self.books.note(worker, g, self._version, IN_FLIGHT, None)
        self._show()
        self.control.send(("finished", *self._news()))

    def _hear_late(self, peer: Peer, message: tuple[Any, ...]) -> None:
        getattr(self, f"_on_{message[0]}")(peer, *message[1:])
