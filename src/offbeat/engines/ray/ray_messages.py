"""What the processes of a run on a cluster say to each other beyond what all real engines say."""

from typing import Any

from msgspec import Raw, Struct

from offbeat.engines.ray.sum_messages import SumsToServer, SumsToWorker
from offbeat.engines.real.messages import FromControl, FromWorker, ToControl, ToWorker, Transaction

CONTROL = -1  # the sender's number in the control's messages

Row = tuple[list[int], list[float]]
"""A worker's numbers on the board: whole ones and real ones."""


class Look(Struct, array_like=True):
    """The run's numbers on the board, as the server has them. Rides on each of its messages to a worker."""

    zero_ns: int
    paused_ns: int
    work: int
    updates: int
    loss_limit: float
    rest: int
    cancel: int
    confirmed: int  # announcements of this worker that are written down
    alive: list[int]


class Envelope(Struct, array_like=True):
    """One message. A receiver takes those of the life it knows of, each once and in order."""

    worker: int
    life: int
    sequence: int
    sizes: list[int]  # of the frames with tensors, in bytes
    row: Row | None  # from a worker
    look: Look | None  # from the server
    body: Raw
    apart: bool = False  # the tensors come after it, in parts


class NextPart(Struct, tag=True):
    """The next bytes of a message's tensors."""


# -- a worker to the server -------------------------------------------------------------------------------------------


class Hello(Struct, tag=True):
    """A worker has opened its line, and how it comes; said again until it is answered."""

    how: str
    near: bool = False  # it shares memory with the server
    machine: str = ""  # its address


class Ping(Struct, tag=True):
    """What time is it with you?"""


class Began(Struct, tag=True):
    """A gradient was begun: see the row."""


class Announced(Struct, tag=True):
    """What the rule has announced, numbered from 1."""

    rows: list[Any]
    steps: int
    number: int


class Standing(Struct, tag=True):
    """The worker stands still. What it shows of itself since it last did, packed."""

    shown: Any


class Leaving(Struct, tag=True):
    """The same, before it leaves."""

    shown: Any


HeardByServer = FromWorker | SumsToServer | Hello | Ping | Began | Announced | Standing | Leaving

# -- the server to a worker -------------------------------------------------------------------------------------------


class Welcome(Struct, tag=True):
    """Who you are: your numbers on the board, and the statistics that you had. `kernel` says whose clock is ours."""

    row: Row
    buffers: Any
    kernel: str


class Pong(Struct, tag=True):
    """By the server's clock."""

    server_ns: int


class Stand(Struct, tag=True):
    """Stand still."""


class Resume(Struct, tag=True):
    """Go on."""


class Looked(Struct, tag=True):
    """Nothing but the numbers that ride on it."""


HeardByWorker = ToWorker | SumsToWorker | Welcome | Pong | Stand | Resume | Looked

# -- the control and the server ---------------------------------------------------------------------------------------


class WorkerEnded(Struct, tag=True):
    """The process of this life of a worker is gone. It was to come so, if it has not come yet."""

    rank: int
    life: int
    how: str


class Kept(Struct, tag=True):
    """All transactions up to this number are with the control."""

    number: int


OrderedByControl = FromControl | WorkerEnded | Kept


class Recorded(Struct, tag=True):
    """A transaction; nobody is answered before it is kept.

    `rows` are numbers of workers that have changed; `heard` is, of each worker, (life, number of the last announcement)
    that it holds.
    """

    number: int
    transaction: Transaction
    rows: dict[int, Row]
    heard: dict[int, tuple[int, int]]
    followed: float  # up to when the cluster's description was followed


class Shows(Struct, tag=True):
    """What is on the board, for the control: numbers, the snapshot and statistics where they are new (packed)."""

    rows: dict[int, Row]
    snapshot: Any
    buffers: dict[int, Any]


class EndWorker(Struct, tag=True):
    """Please end this process."""

    rank: int
    life: int


class Noticed(Struct, tag=True):
    """Something the user should know of."""

    what: str


HeardByControl = ToControl | Recorded | Shows | EndWorker | Noticed
