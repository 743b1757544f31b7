"""A worker's side in one process: messages are objects in queues, vectors are handed over as they are."""

from collections.abc import Callable, Mapping
from copy import copy
from threading import Event
from typing import TYPE_CHECKING, Any, NoReturn

from offbeat.core.effects import AllReduce, Gradient, Send
from offbeat.core.reduction import payload_bytes
from offbeat.engines.debug.still import Inbox, Killed
from offbeat.engines.real import messages as m
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Said

if TYPE_CHECKING:
    from offbeat.engines.debug.thread_hub import ThreadHub


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
