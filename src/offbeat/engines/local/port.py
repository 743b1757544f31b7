"""A worker's side on one machine."""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import convert

from offbeat.core.effects import AllReduce, Send
from offbeat.core.reduction import payload_bytes
from offbeat.engines.local import announcements
from offbeat.engines.local.arena import MAILBOXES, Arena
from offbeat.engines.local.channel import Channel
from offbeat.engines.local.local_messages import Mean, SumRows, SumSlice
from offbeat.engines.local.sums import WorkerSums
from offbeat.engines.real import messages as m
from offbeat.engines.real.in_place import InPlace
from offbeat.engines.real.mail import Known
from offbeat.engines.real.site import Site
from offbeat.engines.real.worker_loop import WorkerLoop

_PATIENCE = 0.005  # seconds between two looks for a free mailbox


class LocalPort:
    """A `Port` of one socket pair and shared memory."""

    def __init__(self, site: Site, arena: Arena, rank: int, channel: Channel) -> None:
        self._site, self._arena, self._rank, self._channel = site, arena, rank, channel
        self._mail, self._clock = site.mail(arena.slots), site.clock
        self._known: Known = {"x0": site.initial.x}
        self._sums = WorkerSums(arena, self._mail, rank, channel)
        self._in_place: InPlace
        self._posted = 0

    # -- the server ---------------------------------------------------------------------------------------------

    def call(self, payload: Any, works: list[int]) -> float:
        packed = self._mail.pack(payload, self._arena.push_slot(self._rank), self._known)
        sent = self._clock.now()
        self._channel.send(m.Called(packed, sent, payload_bytes(payload), works))
        return sent

    def send(self, message: m.FromWorker) -> None:
        self._channel.send(message)

    def receive(self, timeout_seconds: float | None) -> Any:
        while True:
            message = self._channel.receive(timeout_seconds)
            if type(message) is m.Answered:
                received = self._clock.now()
                slot = self._arena.pull_slot(self._rank)
                tree, parts = message.value
                message.value, self._known = self._mail.unpack_reply(tree, parts, slot, self._known)
                message.seconds = self._clock.now() - received
            elif type(message) is m.Letter:
                message.letter = self._open(message.sender, *message.letter)
            elif type(message) is SumSlice or type(message) is SumRows:
                self._sum(message)
                continue
            return message

    def announce(self, rows: list[Any], steps: int) -> None:
        announcements.announce(self._arena, self._rank, rows, steps)

    # -- sums ---------------------------------------------------------------------------------------------------

    def reduce(self, effect: AllReduce) -> None:
        self._channel.send(self._sums.give(effect))

    def mean(self, met: m.Met) -> Any:
        return self._sums.mean(met, convert(met.mean, Mean))

    def _sum(self, asked: SumSlice | SumRows) -> None:
        begun = self._clock.now()
        if isinstance(asked, SumSlice):
            self._sums.sum_slice(asked)
        else:
            self._sums.sum_rows(asked)
        self._arena.communicating[self._rank] += self._clock.now() - begun

    # -- messages to peers: written once where all may read, passed on by the server in order ---------------------

    def post(self, effect: Send, hear: Callable[[float | None], bool]) -> tuple[int, ...]:
        arena, i = self._arena, self._rank
        k = self._posted % MAILBOXES
        while any(arena.unread[i, k, j] and arena.alive[j] for j in range(arena.shape.workers)):
            hear(_PATIENCE)  # or two that wait for each other would wait for ever
        begun = self._clock.now()
        self._posted += 1
        packed = self._mail.pack(effect.message, arena.mailbox(i, k), {})
        to = [j for j in effect.to if arena.alive[j]]
        arena.unread[i, k, to] = 1
        self._channel.send(m.Post(to, (k, *packed), payload_bytes(effect.message)))
        arena.communicating[i] += self._clock.now() - begun
        return tuple(to)

    def _open(self, sender: int, k: int, tree: Any, parts: list[Any]) -> Any:
        letter = self._mail.unpack(tree, parts, self._arena.mailbox(sender, k), {})
        self._arena.unread[sender, k, self._rank] = 0
        return letter

    def began(self) -> None:
        pass  # it is in memory that outlives this process

    def look(self) -> None:
        pass  # the board is everybody's

    # -- what needs shared memory -------------------------------------------------------------------------------

    def handlers(self, worker: WorkerLoop) -> Mapping[type, Callable[[Any], Any]]:
        self._in_place = InPlace(self._site, self._arena.vectors, self._rank, lambda: worker.rounds)
        return self._in_place.handlers

    def around(self, go: Callable[[], Any]) -> Any:
        return self._in_place.around(go)

    def catch_up(self) -> None:
        self._in_place.catch_up()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        while True:
            signal.pause()
