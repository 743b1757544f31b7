"""Frames through Ray's own calls, where only its ports are open: slower, and the same in all else."""

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

_LONG = 0.5  # seconds that a question for messages may be under way


class ActorServer:
    """The server's end: a queue that calls fill, handles of those who can be called, and a shelf for the control."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[tuple[bytes, list[Any]]] = SimpleQueue()
        self._for_control: SimpleQueue[list[Any]] = SimpleQueue()
        self._peers: dict[bytes, Any] = {}

    def attach(self, identity: bytes, peer: Any) -> None:
        self._peers[identity] = peer

    def deliver(self, identity: bytes, frames: list[Any]) -> None:
        self._inbox.put((identity, frames))

    def fetch(self, timeout_seconds: float) -> list[list[Any]]:
        """All that is there for the control; waits for the first."""
        found = []
        try:
            found.append(self._for_control.get(timeout=timeout_seconds))
            while True:
                found.append(self._for_control.get_nowait())
        except Empty:
            return found

    def receive(self, timeout_seconds: float) -> tuple[bytes, list[Any]] | None:
        found: tuple[bytes, list[Any]] | None = _get(self._inbox, timeout_seconds)
        return found

    def send(self, identity: bytes, frames: Sequence[Any]) -> None:
        sent = [bytes(f) for f in frames]
        if identity in self._peers:
            self._peers[identity].deliver.remote(b"", sent)
        else:
            self._for_control.put(sent)

    def close(self) -> None:
        self._peers.clear()


class ActorPeer:
    """A worker's end."""

    def __init__(self, server: Any, identity: bytes) -> None:
        self._server, self._identity = server, identity
        self._inbox: SimpleQueue[list[Any]] = SimpleQueue()

    def deliver(self, identity: bytes, frames: list[Any]) -> None:
        self._inbox.put(frames)

    def receive(self, timeout_seconds: float) -> list[Any] | None:
        found: list[Any] | None = _get(self._inbox, timeout_seconds)
        return found

    def send(self, frames: Sequence[Any]) -> None:
        self._server.deliver.remote(self._identity, [bytes(f) for f in frames])

    def close(self) -> None:
        pass


class ActorControl(ActorPeer):
    """The control's end: it cannot be called, so it asks."""

    def __init__(self, server: Any, identity: bytes) -> None:
        super().__init__(server, identity)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="messages through Ray", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        import ray

        while not self._over.is_set():
            try:
                for frames in ray.get(self._server.fetch.options(concurrency_group="outbox").remote(_LONG)):
                    self._inbox.put(frames)
            except ray.exceptions.RayError:
                return  # its end is noticed elsewhere

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def _get(queue: "SimpleQueue[Any]", timeout_seconds: float) -> Any:
    try:
        return queue.get(timeout=timeout_seconds) if timeout_seconds > 0 else queue.get_nowait()
    except Empty:
        return None
