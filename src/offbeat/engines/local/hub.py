"""The server's side on one machine: lines to workers and to the control, vectors in shared memory."""

import contextlib
import os
import select
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

from torch import Tensor

from offbeat.core.effects import SharedAdd
from offbeat.core.reduction import payload_bytes
from offbeat.engines.local import announcements
from offbeat.engines.local.arena import Arena
from offbeat.engines.local.channel import Channel
from offbeat.engines.local.local_messages import Arriving, HeardByServer, Summed
from offbeat.engines.local.sums import ServerSums
from offbeat.engines.real import messages as m
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.mail import Known
from offbeat.engines.real.memory_slots import bytes_of
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Came, Closed, Heard, Ordered, Said, WentAway


class ProcessLine:
    """The line to one worker, its process, and what both ends have."""

    def __init__(self, rank: int, channel: Channel, pid: int, x0: Any) -> None:
        self.rank, self.channel = rank, channel
        self.pidfd = os.pidfd_open(pid)
        self.known: Known = {"x0": x0}

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)


class LocalHub:
    """A `Hub` of socket pairs and shared memory."""

    def __init__(self, site: Site, arena: Arena, control: Channel, forker: Channel) -> None:
        self._site, self._arena, self._control, self._forker = site, arena, control, forker
        self._mail = site.mail(arena.slots)
        self._lines: dict[int, ProcessLine] = {}
        self._by_fd: dict[int, ProcessLine] = {}
        self._ready: deque[int] = deque()  # descriptors with something to read
        self._sums = ServerSums(arena, site.options.short, self.send)
        self._poll = select.poll()
        for channel in (control, forker):
            self._poll.register(channel, select.POLLIN)

    # -- hearing ------------------------------------------------------------------------------------------------

    def next(self, timeout_seconds: float) -> Heard | None:
        if not self._ready:
            self._ready.extend(fd for fd, _ in self._poll.poll(timeout_seconds * 1000 + 0.5))
        while self._ready:
            fd = self._ready.popleft()
            if fd in self._by_fd:
                return self._hear(self._by_fd[fd])
            if fd == self._forker.fileno():
                return self._welcome()
            if fd == self._control.fileno():
                return Ordered(self.next_order())
        return None

    def next_order(self) -> m.FromControl:
        order: m.FromControl = self._control.receive()
        return order

    def _hear(self, line: ProcessLine) -> Heard:
        try:
            return Said(line.rank, self._unpacked(line, line.channel.receive()))
        except Closed:
            return WentAway(line.rank)

    def _unpacked(self, line: ProcessLine, message: Any) -> Any:
        if type(message) is m.Called:
            tree, parts = message.payload
            message.payload = self._mail.unpack(tree, parts, self._arena.push_slot(line.rank), line.known)
        return message

    def _welcome(self) -> Came:
        """The forker hands over the line to a new worker."""
        arriving, fds = self._forker.receive_with_fds(None, 1)
        assert isinstance(arriving, Arriving)
        channel = Channel.of(fds[0], HeardByServer)
        line = ProcessLine(arriving.rank, channel, arriving.pid, self._site.initial.x)
        self._lines[line.rank] = self._by_fd[channel.fileno()] = line
        self._poll.register(channel, select.POLLIN)
        return Came(line.rank, arriving.how)

    def other(self, worker: int, message: Any) -> None:
        if not isinstance(message, Summed):
            raise TypeError(f"the server was sent {message!r} by worker {worker}")
        self._sums.summed(message)

    def unread(self, worker: int) -> list[m.FromWorker]:
        found = []
        line = self._lines[worker]
        with contextlib.suppress(Closed):
            while (message := line.channel.receive(0)) is not None:
                found.append(self._unpacked(line, message))
        return found

    # -- saying -------------------------------------------------------------------------------------------------

    def send(self, worker: int, message: Any) -> None:
        if worker in self._lines:
            with contextlib.suppress(Closed):
                self._lines[worker].channel.send(message)

    def answer(self, worker: int, value: Any) -> int:
        line = self._lines[worker]
        tree, parts, line.known = self._mail.pack_reply(value, self._arena.pull_slot(worker), line.known)
        self.send(worker, m.Answered((tree, parts)))
        return min(payload_bytes(value), bytes_of(parts))  # less, where only rows went

    def forward(self, sender: int, to: int, letter: Any) -> None:
        self.send(to, m.Letter(sender, letter))

    def tell(self, message: m.ToControl) -> None:
        self._control.send(message)

    def sum_up(self, meeting: Meeting, done: Callable[[Meeting, Any, int], None]) -> None:
        self._sums.begin(meeting, done)

    # -- the record ---------------------------------------------------------------------------------------------

    def record(self, transaction: m.Transaction) -> None:
        announcements.keep(self._arena, transaction)

    def announced(self) -> tuple[list[Any], int]:
        return announcements.announced(self._arena)

    def shared(self) -> tuple[Tensor, int] | None:
        if SharedAdd not in self._site.solver.asks:
            return None
        return self._arena.vectors.as_it_is()

    def share(self, x: Tensor, version: int) -> None:
        self._arena.vectors.share(x, version)

    # -- processes ----------------------------------------------------------------------------------------------

    def lost(self, worker: int) -> None:
        line = self._lines.pop(worker)
        fd = line.channel.fileno()
        del self._by_fd[fd]
        self._poll.unregister(line.channel)
        self._ready = deque(other for other in self._ready if other != fd)  # its number may be another's soon
        line.close()
        self._arena.vectors.placed[worker] = 0
        self._arena.unread[:, :, worker] = 0
        self._sums.lost(worker)

    def pause(self) -> None:
        for line in self._lines.values():
            line.signal(signal.SIGSTOP)

    def resume(self) -> None:
        for line in self._lines.values():
            line.signal(signal.SIGCONT)

    def end(self, worker: int) -> None:
        self._lines[worker].signal(signal.SIGKILL)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        while True:
            signal.pause()
