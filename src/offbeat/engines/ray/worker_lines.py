"""The server's lines to workers: whom it knows, in which of their lives, and what both ends of a line have."""

from typing import Any

from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.frames import WrongMessageError
from offbeat.engines.ray.wire import Letters, identity_of, key_of, sender_of
from offbeat.engines.real.mail import Known, Mail


class WorkerLine:
    """The line to one life of one worker."""

    def __init__(self, secret: bytes, rank: int, life: int, x0: Any, mail: Mail, hears: Any) -> None:
        self.mail = mail
        """For questions and answers, whose vectors may lie in memory that we share."""
        self.near = False
        self.machine = ""
        self.row: r.Row | None = None  # as it was last seen in shared memory
        self.rank, self.life = rank, life
        self.identity = identity_of(secret, rank, life)
        self.letters = Letters(key_of(secret, rank, life), rank, life, hears, to_server=False)
        self.known: Known = {"x0": x0}
        self.came = False
        self.standing = False
        self.announced = 0  # the number of the last announcement that came,
        self.confirmed = 0  # and of the last one that is written down


class WorkerLines:
    """Lines by worker. What an earlier life of a worker still says is refused."""

    def __init__(self, secret: bytes, workers: int, x0: Any, mail: Mail, hears: Any = r.HeardByServer) -> None:
        """`x0`: what both ends of a line have from the start; `hears`: the messages that come."""
        self._secret, self._workers, self.x0, self._mail, self._hears = secret, workers, x0, mail, hears
        self.by_rank: dict[int, WorkerLine] = {}
        self._by_identity: dict[bytes, WorkerLine] = {}
        self._last_life: dict[int, int] = {}

    def of(self, identity: bytes, frames: list[Any]) -> WorkerLine:
        """Whose message this is; WrongMessageError if it is of nobody to talk to."""
        line = self._by_identity.get(identity)
        return self._meet(identity, frames) if line is None else line

    def _meet(self, identity: bytes, frames: list[Any]) -> WorkerLine:
        """Somebody we do not know yet: a worker that greets us, or a stranger."""
        try:
            rank, life = sender_of(frames)
        except WrongMessageError:
            rank, life = r.CONTROL, 0
        if not 0 <= rank < self._workers or identity != identity_of(self._secret, rank, life):
            raise WrongMessageError("somebody sent a message who is not part of the run")
        if not self.is_new(rank, life):
            raise WrongMessageError(f"worker {rank} sent a message from life {life}, which is over")
        return self.open(rank, life)

    def is_new(self, rank: int, life: int) -> bool:
        """Whether we have heard nothing yet of this life of a worker, or of a later one."""
        return life > self._last_life.get(rank, 0)

    def open(self, rank: int, life: int) -> WorkerLine:
        line = WorkerLine(self._secret, rank, life, self.x0, self._mail, self._hears)
        self._by_identity[line.identity] = self.by_rank[rank] = line
        self._last_life[rank] = life
        return line

    def close(self, rank: int) -> None:
        del self._by_identity[self.by_rank.pop(rank).identity]

    def there(self) -> list[WorkerLine]:
        """Those of workers that have come."""
        return [line for line in self.by_rank.values() if line.came]
