"""The processes of one run on one machine: who starts them, who ends them, and how they ended."""

import contextlib
import os
import signal
import time
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.engines.local import announcements
from offbeat.engines.local.arena import Arena
from offbeat.engines.local.channel import Channel
from offbeat.engines.local.launcher import ForkerProcess, Launcher
from offbeat.engines.local.local_messages import (
    AllEnded,
    EndAll,
    Ended,
    FromForker,
    NotReady,
    SetUp,
    Started,
    StartServer,
    StartWorker,
    ToForker,
)
from offbeat.engines.real.board import Board
from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker
from offbeat.engines.real.machine import times_out_of_memory
from offbeat.engines.real.messages import FromControl, ToControl, Totals, Transaction
from offbeat.engines.real.site import Setup, pickled
from offbeat.engines.real.transport import Closed, RunError

_CONSTRUCTION_SECONDS = 300.0  # for importing torch and making the task
_END_SECONDS = 10.0  # of a process that is known to have ended
_FORKER_LOST = "the process that starts the others was lost: this run cannot go on (offbeat resume does)"


class ServerLine:
    """The engine's line to a server, and its eye on what the server has written down."""

    def __init__(self, channel: Channel, arena: Arena) -> None:
        self._channel, self._arena = channel, arena

    def send(self, order: FromControl) -> None:
        self._channel.send(order)

    def receive(self, timeout_seconds: float) -> ToControl | None:
        message: ToControl | None = self._channel.receive(timeout_seconds)
        return message

    def committed(self) -> list[Transaction]:
        return list(announcements.committed(self._arena))

    def announced(self) -> tuple[list[Any], int]:
        return announcements.announced(self._arena)

    def close(self) -> None:
        self._channel.close()


class LocalProcesses:
    """Started by a forker, which the launcher forks:

    this process --- launcher (imports torch) --- forker (makes the task)
         |                                          |-- server         the rule's server, in order of arrival
         '------------------------------------------|-- worker 0 ... W - 1
    """

    def __init__(self, setup: Setup, name: str, arena: Arena, launcher: Launcher | None) -> None:
        self.board: Board = arena
        self.arena = arena
        self._setup, self._name, self._launcher = setup, name, launcher
        self._own: Launcher | None = None  # one that nobody handed us
        self._forker: ForkerProcess | None = None
        self._line: Channel | None = None  # to the forker
        self._exits: dict[tuple[str, int], Ended] = {}
        self._out_of_memory = times_out_of_memory()  # so often before

    def open(self) -> None:
        blob = pickled(self._setup)
        if self._launcher is None:
            self._launcher = self._own = Launcher()
        ours, theirs = Channel.pair(FromForker, ToForker)
        with contextlib.closing(theirs):
            self._forker = self._launcher.forker(theirs, self.arena.fd)
        self._line = ours
        ours.send(SetUp(blob, list(self.arena.shape)))
        try:
            message = ours.receive(_CONSTRUCTION_SECONDS)
        except Closed:
            raise RunError("the process that makes the task ended without a word") from None
        if message is None:
            raise RunError(f"the task {self._name!r} was not made within {_CONSTRUCTION_SECONDS:.0f} s")
        if isinstance(message, NotReady):
            raise ConfigError(f"task {self._name!r} cannot be made in a worker process: {message.why}")

    def start_server(self, saved: Checkpoint | None, life: int, totals: Totals) -> ServerLine:
        ours, theirs = Channel.pair(ToControl, FromControl)
        with contextlib.closing(theirs):
            self._tell(StartServer(saved, life, totals), theirs.fileno())
        self._await_started("the server")
        return ServerLine(ours, self.arena)

    def start_worker(self, rank: int, life: int, how: str, saved: SavedWorker | None = None) -> None:
        self._tell(StartWorker(rank, life, how, saved))
        self._await_started(f"worker {rank}")

    def _await_started(self, who: str) -> None:
        message = self._receive(Started, self._setup.options.patience_seconds)
        if message is None:
            raise RunError(f"{who} was not started in time: the process that starts the others does not answer")
        if message.why:
            raise RunError(f"{who} cannot be started: {message.why}")

    def _receive(self, kind: type, seconds: float) -> Any:
        """The forker's next message of this kind; None when there is none in time. Who has ended is noted."""
        assert self._line is not None
        deadline = time.monotonic() + seconds
        try:
            while (message := self._line.receive(max(0.0, deadline - time.monotonic()))) is not None:
                if isinstance(message, Ended):
                    self._exits[message.role, message.rank] = message
                if isinstance(message, kind):
                    return message
        except Closed:
            raise RunError(_FORKER_LOST) from None
        return None

    def _tell(self, order: StartServer | StartWorker | EndAll, *fds: int) -> None:
        assert self._line is not None
        try:
            self._line.send(order, *fds)
        except Closed:
            raise RunError(_FORKER_LOST) from None

    def end_all(self, patience_seconds: float) -> None:
        self._tell(EndAll())
        if self._receive(AllEnded, patience_seconds) is None:
            raise RunError("the processes of the run could not be ended")
        self._exits.clear()

    def room(self, rank: int) -> bool:
        return True

    def machines(self) -> dict[int, str]:
        return {}

    def exit_of(self, role: str, rank: int) -> str:
        deadline = time.monotonic() + _END_SECONDS
        with contextlib.suppress(RunError):  # whoever starts the next one will say so
            while (role, rank) not in self._exits and time.monotonic() < deadline:
                self._receive(Ended, 0.1)
        ended = self._exits.pop((role, rank), None)
        if ended is None:
            return "no exit code"
        how = f"exit code {ended.code}" if ended.code >= 0 else signal.Signals(-ended.code).name
        if ended.code == -signal.SIGKILL and (times := times_out_of_memory()) > self._out_of_memory:
            self._out_of_memory, how = times, f"{how}, out of memory"
        return f"{how} in {ended.where}" if ended.where else how

    def lost_share(self) -> float | None:
        return self.arena.vectors.lost_share()

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._forker is not None:
            self._forker.end()
        if self._own is not None:
            self._own.close()
        self._line = self._forker = self._own = None
        with contextlib.suppress(OSError):
            os.close(self.arena.fd)
