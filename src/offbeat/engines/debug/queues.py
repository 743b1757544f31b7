"""Hub, port and line of one process: messages are objects in queues, vectors are handed over as they are."""

from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from queue import Empty, SimpleQueue
from threading import Condition, Event
from typing import Any, NoReturn

from offbeat.core.effects import AllReduce, Gradient, Send
from offbeat.core.reduction import mean_of, payload_bytes
from offbeat.engines.real import messages as m
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Closed, Heard, Ordered, Said

_END = object()  # in a queue: nothing comes any more
_LOOK = 0.05  # seconds between two looks at who is still there


class Killed(BaseException):
    """A thread ends as if its process had been killed."""


class Inbox:
    """A queue that can be closed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._closed = Event()

    def put(self, message: Any) -> None:
        if self._closed.is_set():
            raise Closed
        self._queue.put(message)

    def get(self, timeout_seconds: float | None) -> Any:
        """The next message; None when there is none in time."""
        if self._closed.is_set() and self._queue.empty():
            raise Closed
        try:
            message = self._queue.get(timeout=timeout_seconds)
        except Empty:
            return None
        if message is _END:
            raise Closed
        return message

    def close(self) -> None:
        self._closed.set()
        self._queue.put(_END)


class Gate:
    """What makes threads stand still: none passes while it is closed. One that waits for a message is still, too."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._closed = False
        self._still: set[int] = set()

    def pass_through(self, worker: int, killed: Event) -> None:
        with self._changed:
            while self._closed and not killed.is_set():
                self._stand(worker)
                self._changed.wait()
            self._still.discard(worker)

    def while_waiting(self, worker: int, wait: Callable[[], Any]) -> Any:
        with self._changed:
            self._stand(worker)
        try:
            return wait()
        finally:
            with self._changed:
                self._still.discard(worker)

    def _stand(self, worker: int) -> None:
        self._still.add(worker)
        self._changed.notify_all()

    def close(self, workers: Callable[[], set[int]], killed: Event) -> None:
        """Returns when all of them stand still, or it is over."""
        with self._changed:
            self._closed = True
            while not workers() <= self._still and not killed.is_set():
                self._changed.wait(_LOOK)

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()


class ThreadPort:
    """A worker's side: its own inbox, the server's, and the gate."""

    def __init__(self, site: Site, rank: int, hub: "ThreadHub") -> None:
        self._site, self._rank, self._server, self._announced = site, rank, hub.inbox, hub.announcements
        self._gate = hub.gate
        self.inbox = Inbox()
        self.killed = Event()
        self.running = True

    def _check(self) -> None:
        self._gate.pass_through(self._rank, self.killed)
        if self.killed.is_set():
            raise Killed

    def call(self, payload: Any, works: list[int]) -> float:
        sent = self._site.clock.now()
        given = copy(payload) if isinstance(payload, Gradient) else payload  # the server writes on what it gets
        self.send(m.Called(given, sent, payload_bytes(payload), works))
        return sent

    def send(self, message: m.FromWorker) -> None:
        self._check()
        self._server.put(Said(self._rank, message))

    def receive(self, timeout_seconds: float | None) -> Any:
        self._check()
        if timeout_seconds is not None:
            return self.inbox.get(timeout_seconds)
        message = self._gate.while_waiting(self._rank, lambda: self.inbox.get(None))
        self._check()
        return message

    def announce(self, rows: list[Any], steps: int) -> None:
        self._announced.append((rows, steps))

    def reduce(self, effect: AllReduce) -> None:
        size = len(effect.value) if effect.weight and hasattr(effect.value, "__len__") else 0
        self.send(m.Reducing(effect.weight, effect.members, effect.group, size, effect.value))

    def mean(self, met: m.Met) -> Any:
        return met.mean

    def post(self, effect: Send, hear: Callable[[float | None], bool]) -> tuple[int, ...]:
        to = [j for j in effect.to if self._site.board.alive[j]]
        self.send(m.Post(to, effect.message, payload_bytes(effect.message)))
        return tuple(to)

    def began(self) -> None:
        pass

    def look(self) -> None:
        pass

    def handlers(self, worker: Any) -> Mapping[type, Callable[[Any], Any]]:
        return {}

    def around(self, go: Callable[[], Any]) -> Any:
        self._check()
        return go()

    def catch_up(self) -> None:
        pass

    def die(self) -> NoReturn:
        raise Killed

    def hang(self) -> None:
        self.killed.wait()
        raise Killed


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
