"""How threads hand each other messages, stand still together, and end as if they were processes."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Condition, Event
from typing import Any

from offbeat.engines.real.transport import Closed

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
