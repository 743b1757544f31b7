"""The server's side in one process, and the control's line to it."""

from collections import deque
from collections.abc import Callable
from threading import Event
from typing import Any, NoReturn

from offbeat.core.reduction import mean_of, payload_bytes
from offbeat.engines.debug.still import Gate, Inbox, Killed
from offbeat.engines.debug.thread_port import ThreadPort
from offbeat.engines.real import messages as m
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Heard, Ordered, Said


class ThreadHub:
    """The server's side: one inbox for workers and control."""

    def __init__(self, site: Site, control: Inbox) -> None:
        self._site, self._control = site, control
        self.inbox = Inbox()
        self.killed = Event()
        self.gate = Gate()
        self.ports: dict[int, ThreadPort] = {}
        self.announcements: deque[tuple[list[Any], int]] = deque()
        self.committed: deque[m.Transaction] = deque()  # outlives the server: it is the control's to read
        self._later: deque[Heard] = deque()

    def next(self, timeout_seconds: float) -> Heard | None:
        if self._later:
            return self._later.popleft()
        return self._get(timeout_seconds)

    def _get(self, timeout_seconds: float | None) -> Heard | None:
        if self.killed.is_set():
            raise Killed
        heard: Heard | None = self.inbox.get(timeout_seconds)
        return heard

    def next_order(self) -> m.FromControl:
        while True:
            heard = self._get(None)
            if isinstance(heard, Ordered):
                return heard.order
            assert heard is not None
            self._later.append(heard)

    def answer(self, worker: int, value: Any) -> int:
        self.send(worker, m.Answered(value))
        return payload_bytes(value)

    def send(self, worker: int, message: m.ToWorker) -> None:
        port = self.ports.get(worker)
        if port is not None and not port.killed.is_set():
            port.inbox.put(message)

    def forward(self, sender: int, to: int, letter: Any) -> None:
        self.send(to, m.Letter(sender, letter))

    def tell(self, message: m.ToControl) -> None:
        self._control.put(message)

    def record(self, transaction: m.Transaction) -> None:
        self.committed.append(transaction)

    def announced(self) -> tuple[list[Any], int]:
        rows: list[Any] = []
        steps = 0
        while self.announcements:
            more, count = self.announcements.popleft()
            rows += more
            steps += count
        return sorted(rows, key=lambda row: row[:2]), steps

    def sum_up(self, meeting: Meeting, done: Callable[[Meeting, Any, int], None]) -> None:
        """The server sums, in worker order."""
        mean = mean_of([a.given for _, a in meeting.given], meeting.weights, meeting.group)
        done(meeting, mean, payload_bytes(mean))

    def other(self, worker: int, message: Any) -> None:
        raise TypeError(f"the server was sent {message!r} by worker {worker}")

    def lost(self, worker: int) -> None:
        self.ports.pop(worker).inbox.close()

    def unread(self, worker: int) -> list[m.FromWorker]:
        while (heard := self.inbox.get(0.0)) is not None:
            self._later.append(heard)
        mine = [h for h in self._later if isinstance(h, Said) and h.worker == worker]
        self._later = deque(h for h in self._later if h not in mine)
        return [said.message for said in mine]

    def pause(self) -> None:
        """Waits until every worker stands still: at the latest when it has computed its gradient."""
        self.gate.close(lambda: {i for i, port in list(self.ports.items()) if port.running}, self.killed)

    def resume(self) -> None:
        self.gate.open()

    def end(self, worker: int) -> None:
        port = self.ports[worker]
        port.killed.set()
        port.inbox.close()

    def shared(self) -> None:
        return None

    def share(self, x: Any, version: int) -> None:
        raise NotImplementedError("threads of this engine share no vector")

    def die(self) -> NoReturn:
        raise Killed

    def hang(self) -> None:
        self.killed.wait()
        raise Killed


class ThreadLine:
    """The control's line to the server."""

    def __init__(self, hub: ThreadHub, inbox: Inbox) -> None:
        self._hub, self._inbox = hub, inbox

    def send(self, order: m.FromControl) -> None:
        self._hub.inbox.put(Ordered(order))

    def receive(self, timeout_seconds: float) -> m.ToControl | None:
        message: m.ToControl | None = self._inbox.get(timeout_seconds)
        return message

    def committed(self) -> list[m.Transaction]:
        found = []
        while self._hub.committed:
            found.append(self._hub.committed.popleft())
        return found

    def announced(self) -> tuple[list[Any], int]:
        return self._hub.announced()

    def close(self) -> None:
        pass
