"""What the processes of a run say to each other. Typed records; vectors travel as the transport sees fit."""

from typing import Any

from msgspec import Struct

from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker

# -- a worker to the server -----------------------------------------------------------------------------------------


class Called(Struct, tag=True):
    """A worker's `Call`."""

    payload: Any
    sent: float
    size: int  # of its vectors, in bytes
    works: list[int]  # the work clock of each gradient since the last call, where a schedule needs it


class Awaits(Struct, tag=True):
    """Where workers compute while a message is under way: this one waits for its answer, after so many others. If that
    is under way to it, it does not wait any more."""

    heard: int


class GaveUp(Struct, tag=True):
    """The gradient was given up, as the server had asked."""


class Suspicious(Struct, tag=True):
    """A loss that the watcher must see before anything goes on."""

    loss: float


class Failed(Struct, tag=True):
    """The worker's code raised an error."""

    why: str


class Reducing(Struct, tag=True):
    """A worker has come to an all-reduce. `given` says where its vector is."""

    weight: float
    members: tuple[int, ...] | None
    group: int | None
    size: int
    given: Any


class Post(Struct, tag=True):
    """A message to other workers."""

    to: list[int]
    letter: Any
    size: int


class WaitsForPeer(Struct, tag=True):
    """The worker waits for a message of a peer, and has heard so many things of peers. If more are under way to it, it
    does not wait any more."""

    heard: int


class Left(Struct, tag=True):
    """The worker is done for good."""


class Resting(Struct, tag=True):
    """The worker stands between two rounds and waits to be told to go on."""


class WorkerSaved(Struct, tag=True):
    """What a worker needs to go on from here."""

    saved: SavedWorker


FromWorker = (
    Called | Awaits | GaveUp | Suspicious | Failed | Reducing | Post | WaitsForPeer | Left | Resting | WorkerSaved
)

# -- the server to a worker -----------------------------------------------------------------------------------------


class Start(Struct, tag=True):
    """Everybody is there: begin."""


class Answered(Struct, tag=True):
    """The answer to a `Call`."""

    value: Any
    seconds: float = 0.0  # that the receiver took to unpack it


class LossSeen(Struct, tag=True):
    """The watcher has seen the loss: go on."""


class Met(Struct, tag=True):
    """The members of an all-reduce have come. `mean` says where their mean is, or how to make it."""

    mean: Any
    size: int
    weight: float
    members: list[int]
    work: int


class Letter(Struct, tag=True):
    """A message of a peer."""

    sender: int
    letter: Any


class Gone(Struct, tag=True):
    """A peer was lost; what it had sent has come before this."""

    worker: int


class Back(Struct, tag=True):
    """A peer is there again."""

    worker: int


class SaveYourself(Struct, tag=True):
    """Send what you need to go on from here."""


class GoOn(Struct, tag=True):
    """You have rested enough."""


class Holds(Struct, tag=True):
    """From your batch `first` on, these shares of the data are yours: (share, position in it), in turn."""

    first: int
    shares: list[tuple[int, int]]


class Dismissed(Struct, tag=True):
    """You are not needed any more: leave."""


ToWorker = Holds | Dismissed | Start | Answered | LossSeen | Met | Letter | Gone | Back | SaveYourself | GoOn

# -- the control to the server --------------------------------------------------------------------------------------


class Go(Struct, tag=True):
    """Go on; look up at these marks."""

    samples: float
    updates: float
    deadline: float
    loss_limit: float


class Halt(Struct, tag=True):
    """Everything stands still from now on."""


class Save(Struct, tag=True):
    """A checkpoint, please."""


class Proceed(Struct, tag=True):
    """What belongs to the checkpoint was taken over: go on. What is written down from now on comes after it."""


class Finish(Struct, tag=True):
    """The run is over: one row for everything in flight."""


class TellRate(Struct, tag=True):
    """The learning rate in force?"""


class Rearrange(Struct, tag=True):
    """These workers are to leave, and those will join: everybody comes to rest for it, and shares are dealt anew."""

    leave: list[int]
    join: list[int]
    idle: list[int]  # shares that nobody takes over


FromControl = Rearrange | Go | Halt | Save | Proceed | Finish | TellRate

# -- the server to the control --------------------------------------------------------------------------------------


class Tick(Struct, tag=True):
    """A sign of life."""

    now: float
    silent: list[tuple[int, float]] = []  # workers that are waited for, and since how many seconds


class Mark(Struct, tag=True):
    """The samples or updates asked for are reached; everything stands still until `Go`."""

    now: float


class SuspectLoss(Struct, tag=True):
    """A suspicious loss of a worker's mini-batch; everything stands still until `Go`."""

    now: float
    loss: float
    worker: int
    batch: int


class Deadline(Struct, tag=True):
    """The time is up."""


class WorkerGone(Struct, tag=True):
    """A worker was lost or has left."""

    worker: int
    lost: bool
    meant: bool  # the description of the cluster says so
    batch: int | None  # which it was computing


class Wanted(Struct, tag=True):
    """The description of the cluster says that this worker joins now."""

    worker: int
    now: float


class Hung(Struct, tag=True):
    """A worker was silent for so long that it was ended."""

    worker: int
    seconds: float


class ProcessFailed(Struct, tag=True):
    """The code of a worker, or of the server (-1), raised an error."""

    worker: int
    why: str


class Halted(Struct, tag=True):
    """Everything stands still. What else the watcher wants to know at the end comes with it: nobody need be asked."""

    now: float
    lr: float | None
    optimizer_options: dict[str, Any] | None


class Saved(Struct, tag=True):
    checkpoint: Checkpoint


class Finished(Struct, tag=True):
    pass


class Rate(Struct, tag=True):
    lr: float | None


class Rearranged(Struct, tag=True):
    """They have left; those that are to join may come."""

    now: float


ToControl = (
    Rearranged
    | Tick
    | Mark
    | SuspectLoss
    | Deadline
    | WorkerGone
    | Wanted
    | Hung
    | ProcessFailed
    | Halted
    | Saved
    | Finished
    | Rate
)


# -- what outlives the server ---------------------------------------------------------------------------------------

Entry = tuple[float, str, int, int]
"""One line of the journal: (time, what, worker, number). What there is: begin, join, call, work, cancelled, lost; and
who holds which shares of the data (`core/shares.py`)."""


class Totals(Struct):
    """What a new server goes on counting from."""

    elapsed: float = 0.0  # of the run's clock
    bytes: int = 0
    queued: float = 0.0  # seconds that messages waited for the server
    served: float = 0.0  # seconds that it was busy


class Transaction(Struct):
    """What the server has done with one message: all of it is written down before anybody is answered."""

    now: float
    rows: list[Any]
    steps: int
    journal: list[Entry]
    bytes: int
    queued: float
    served: float
