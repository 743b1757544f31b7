"""The seam: what a real engine has to bring. Four protocols, and the shared part knows nothing else of it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from offbeat.core.effects import AllReduce, Send
from offbeat.core.errors import OffbeatError
from offbeat.engines.real.board import Board
from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.messages import FromControl, FromWorker, Met, ToControl, Totals, ToWorker, Transaction


class Closed(Exception):  # noqa: N818 - nothing went wrong here
    """The other end is gone."""


class RunError(OffbeatError):
    """A process of the run failed."""


class Came:
    """A worker has come: its line is open. It "begins" with the run, "joins" it, or "resumes" from a checkpoint."""

    def __init__(self, worker: int, how: str) -> None:
        self.worker, self.how = worker, how


class WentAway:
    """A worker's line is dead."""

    def __init__(self, worker: int) -> None:
        self.worker = worker


class Said:
    """A message of a worker."""

    def __init__(self, worker: int, message: FromWorker) -> None:
        self.worker, self.message = worker, message


class Ordered:
    """A message of the control."""

    def __init__(self, order: FromControl) -> None:
        self.order = order


Heard = Came | WentAway | Said | Ordered


class Hub(Protocol):
    """The server's side. Messages come in the order of their arrival."""

    def next(self, timeout_seconds: float) -> Heard | None:
        """What comes next; None when nothing does in time. Closed when the control is gone."""

    def next_order(self) -> FromControl:
        """The control's next message, whatever workers say meanwhile."""

    def answer(self, worker: int, value: Any) -> int:
        """Answers a worker's call. How many bytes that took: less than the vectors', where only rows went."""

    def send(self, worker: int, message: ToWorker) -> None:
        """A word to a worker; if it is gone, that is noticed when its line is read."""

    def forward(self, sender: int, to: int, letter: Any) -> None:
        """Passes a worker's message on to another one."""

    def tell(self, message: ToControl) -> None:
        """A word to the control."""

    def record(self, transaction: Transaction) -> None:
        """Writes down what was done, where it outlives the server. Before anybody is answered."""

    def announced(self) -> tuple[list[Any], int]:
        """Rows and steps that workers have announced since the last time, in the order of time."""

    def sum_up(self, meeting: Meeting, done: Callable[[Meeting, Any, int], None]) -> None:
        """Has the vectors of an all-reduce summed, in worker order; then calls done(meeting, mean, bytes of it)."""

    def other(self, worker: int, message: Any) -> None:
        """A message that only the transport understands."""

    def lost(self, worker: int) -> None:
        """Forgets a worker; what it was to sum, another sums."""

    def unread(self, worker: int) -> list[FromWorker]:
        """At the end: what a worker has said and nobody has heard."""

    def pause(self) -> None:
        """Workers stand still, or as nearly so as can be."""

    def resume(self) -> None: ...

    def end(self, worker: int) -> None:
        """Ends a worker's process: its end is noticed like any other."""

    def die(self) -> None:
        """For tests: this process ends at once, as if killed."""

    def hang(self) -> None:
        """For tests: this process does nothing any more."""

    def shared(self) -> tuple[Any, int] | None:
        """A copy of the shared vector and the number of additions to it; None where there is none."""

    def share(self, x: Any, version: int) -> None:
        """Sets the shared vector, and how many additions are in it."""


class Port(Protocol):
    """A worker's side."""

    def call(self, payload: Any, works: list[int]) -> float:
        """Sends a payload to the server; when it set out. The answer comes as `Answered`."""

    def announce(self, rows: list[Any], steps: int) -> None:
        """Hands over what the rule has announced: no answer, and nothing is lost with the worker."""

    def reduce(self, effect: AllReduce) -> None:
        """Gives a vector to an all-reduce. The answer comes as `Met`."""

    def mean(self, met: Met) -> Any:
        """What an all-reduce came to."""

    def post(self, effect: Send, hear: Callable[[float | None], bool]) -> tuple[int, ...]:
        """Sends a message to peers; whom it went to. `hear` sees to other messages while there is no room."""

    def send(self, message: FromWorker) -> None:
        """A word to the server."""

    def receive(self, timeout_seconds: float | None) -> Any:
        """The next message, its vectors unpacked; None when there is none in time. Closed when the server is gone."""

    def began(self) -> None:
        """A gradient was begun: the server is to know of it even if this process is lost."""

    def look(self) -> None:
        """Takes in what others have written on the board, and stands still if the server says so."""

    def handlers(self, worker: Any) -> Mapping[type, Callable[[Any], Any]]:
        """How to carry out effects that need more than messages: a shared vector, averages of pairs."""

    def around(self, go: Callable[[], Any]) -> Any:
        """Lets the rule run to its next request; alone, where peers may change its parameters."""

    def catch_up(self) -> None:
        """Takes in what peers have made of its parameters."""

    def die(self) -> None:
        """For tests: this process ends at once, as if killed."""

    def hang(self) -> None:
        """For tests: this process does nothing any more."""


class ControlLine(Protocol):
    """The control's line to a server."""

    def send(self, order: FromControl) -> None: ...

    def receive(self, timeout_seconds: float) -> ToControl | None:
        """The next message; None when there is none in time. Closed when the server is gone."""

    def committed(self) -> list[Transaction]:
        """What the server has written down since the last time. It can be asked also when the server is gone."""

    def announced(self) -> tuple[list[Any], int]:
        """When everybody has ended: rows and steps that workers had announced, and the server had not read."""

    def close(self) -> None: ...


class Processes(Protocol):
    """Starts and ends the processes of one run, and says how they ended."""

    board: Board

    def open(self) -> None:
        """Makes ready: the task is made where servers and workers will find it."""

    def start_server(self, saved: Checkpoint | None, life: int, totals: Totals) -> ControlLine:
        """A server, from a checkpoint or the beginning, that goes on counting from these totals."""

    def start_worker(self, rank: int, life: int, how: str, saved: SavedWorker | None = None) -> None:
        """A worker that "begins" with the run, "joins" it, or "resumes" from what was saved."""

    def room(self, rank: int) -> bool:
        """Whether there is a place for this worker now."""

    def end_all(self, patience_seconds: float) -> None:
        """Ends the server and all workers, before others begin."""

    def exit_of(self, role: str, rank: int) -> str:
        """How a process ended that is known to have ended."""

    def machines(self) -> Mapping[int, str]:
        """Of each worker that was started, the machine that it was on last; empty where there is only one."""

    def lost_share(self) -> float | None:
        """Of the additions to a shared vector, how much was undone by others; None where it is not known."""

    def close(self) -> None:
        """Ends everything and gives memory back."""
