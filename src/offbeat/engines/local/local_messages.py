"""What only the processes of one machine say to each other: how sums are shared out, and who is to be started."""

from typing import Any

from msgspec import Struct

from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker
from offbeat.engines.real.messages import FromWorker, Totals, ToWorker

Places = list[tuple[int, int]]
"""(worker, which of its places): where the vectors of an all-reduce lie."""


class Summands(Struct):
    """What is to be averaged."""

    places: Places
    weights: list[float]
    group: int | None


class SumSlice(Struct, tag=True):
    """Average slice k of n of these vectors, into the vector of worker `at`."""

    at: int
    size: int
    summands: Summands
    k: int
    n: int


class SumRows(Struct, tag=True):
    """Average row-sparse values, all of them: which rows there are is known only after the sum."""

    at: int
    given: list[int]
    rows: list[Any]
    weights: list[float]
    group: int | None


class Summed(Struct, tag=True):
    """Done; of row-sparse values also where their mean lies, and what it takes."""

    at: int
    k: int
    rows: Any = None
    nbytes: int = 0


class Mean(Struct):
    """Where the mean of an all-reduce lies: with worker `at`; as rows; or in vectors that everybody averages itself."""

    at: int
    rows: Any = None
    summands: Summands | None = None


HeardByServer = FromWorker | Summed
HeardByWorker = ToWorker | SumSlice | SumRows

# -- the engine to the forker -----------------------------------------------------------------------------------------


class SetUp(Struct, tag=True):
    """The run: a `site.Setup`, pickled, and the shape of the shared memory."""

    setup: bytes
    shape: list[Any]


class StartServer(Struct, tag=True):
    saved: Checkpoint | None
    life: int
    totals: Totals


class StartWorker(Struct, tag=True):
    rank: int
    life: int
    how: str
    saved: SavedWorker | None


class EndAll(Struct, tag=True):
    pass


ToForker = SetUp | StartServer | StartWorker | EndAll


class Ready(Struct, tag=True):
    pass


class NotReady(Struct, tag=True):
    why: str


class Started(Struct, tag=True):
    """A server or a worker; or why it could not be."""

    why: str = ""


class Ended(Struct, tag=True):
    role: str
    rank: int
    code: int
    where: str | None  # of a crash: the user's line


class AllEnded(Struct, tag=True):
    pass


FromForker = Ready | NotReady | Started | Ended | AllEnded


class Arriving(Struct):
    """The forker to the server: a worker was started; its line comes with this."""

    rank: int
    pid: int
    how: str


class Fork(Struct):
    """To the launcher: a forker for one run, please; its line and the shared memory come with this."""


class Forked(Struct):
    pid: int
    why: str = ""  # it could not be
