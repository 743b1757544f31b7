"""What a rule may ask for, and what it may announce. An engine is an interpreter of these requests.

A worker's rule is a generator: it yields an effect and is sent the answer. The server's rule yields what should
happen next. Plain classes with slots, because a timing-only simulation makes hundreds of thousands a second.

| effect | asked by | answer |
|---|---|---|
| `Grad(at, version)` | worker | a `Gradient`, or None when the server cancelled it |
| `Batch()` | worker | None, when the batch for its next gradient is at hand; `Grad` alone waits for it, too |
| `Call(payload)` | worker | what the server's `Reply` carries; the server may hold it back |
| `AllReduce(value, weight, members, group)` | worker | `Reduced`: the weighted mean over the members |
| `Send(to, message)` | worker | the receivers that are there, at once; their rules see it in `on_message` |
| `Wait(peer)` | worker | True after the next message, from whomever; False if that peer is gone |
| `Mix(peer)` | worker | None, when both workers have the mean of their parameters |
| `SharedRead()` | worker | a `View` of the shared vector, perhaps torn: no lock, chunk by chunk |
| `SharedAdd(delta)` | worker | how many adds were finished before this one |
| `Lock()`, `Unlock()` | worker | None; first come, first served |
| `Applied(worker, gradient, version)` | both | None: an announcement that becomes one row of the trace |
| `Received(worker, gradient, staleness)` | worker | None: likewise, where a peer's gradient is applied too |
| `Refused(worker, gradient, version)` | server | None: likewise, for a gradient that was not used |
| `Stepped()` | both | None: one more update was made |
| `Reply(worker, value)`, `Cancel(worker)` | server | None |
| `Stop()` | worker | never: the worker leaves |
"""

from copy import copy
from typing import Any


class Gradient:
    """A stochastic gradient, where it came from, and what it was computed on."""

    __slots__ = (
        "at",
        "buffers",
        "computed",
        "correct",
        "draw",
        "loss",
        "norm",
        "parts",
        "samples",
        "source",
        "started",
        "value",
        "version",
        "work",
    )

    def __init__(
        self,
        value: Any,
        loss: float,
        samples: int,
        correct: int | None = None,
        norm: float | None = None,
        buffers: Any = None,
    ) -> None:
        # What the task computed ...
        self.value, self.loss, self.samples, self.correct, self.norm = value, loss, samples, correct, norm
        self.buffers = buffers  # taken by the engine, which keeps each worker's own
        # ... and what the engine knows of it.
        self.at: Any = None  # the point itself, shared and never mutated
        self.version: int | None = None  # version of the point, where the method has versions
        self.source = self.draw = 0  # which mini-batch
        self.started = self.computed = 0.0
        self.work = 0  # samples processed by everybody when this gradient was delivered: the work clock
        self.parts: tuple[Gradient, ...] = ()  # what it was made of, where a worker pushes several at once

    def carrying(self, value: Any) -> "Gradient":
        """The same gradient with another value: what a rule was given is never changed."""
        made = copy(self)
        made.value = value
        return made


class View:
    """What the server publishes: parameters (never mutated again) and their version."""

    __slots__ = ("version", "x")

    def __init__(self, x: Any, version: int) -> None:
        self.x, self.version = x, version


class Grad:
    """Compute a gradient at a point, on the worker's next mini-batch."""

    __slots__ = ("at", "version")

    def __init__(self, at: Any, version: int | None = None) -> None:
        self.at, self.version = at, version


class Batch:
    """Waits for the next mini-batch where a generator node makes them, for rules that read their point after it."""

    __slots__ = ()


class Call:
    """Send a payload to the server and wait for its reply. None as payload is a pull."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any = None) -> None:
        self.payload = payload


class AllReduce:
    """The mean of the members' `value`, weighted by `weight`; everybody gets the same bits.

    `members` are the workers that take part, those of them that are alive (None: all). Summed in worker order or, with
    `group`, within groups of so many and then over the groups, as a hierarchical all-reduce does. A member of weight 0
    only listens; if all but one do, it is a broadcast, and if all do, the mean is None.
    """

    __slots__ = ("group", "members", "value", "weight")

    def __init__(
        self, value: Any, weight: float = 1.0, members: tuple[int, ...] | None = None, group: int | None = None
    ) -> None:
        self.value, self.weight, self.members, self.group = value, weight, members, group


class Reduced:
    """The answer to an `AllReduce`: the mean, the sum of the weights, and who took part."""

    __slots__ = ("members", "value", "weight", "work")

    def __init__(self, value: Any, weight: float, members: tuple[int, ...], work: int) -> None:
        self.value, self.weight, self.members = value, weight, members
        self.work = work  # samples processed by everybody when it was made: a work clock that members agree on


class Send:
    """A message to other workers, not waited for. Messages of one sender to one receiver arrive in order."""

    __slots__ = ("message", "to")

    def __init__(self, to: tuple[int, ...], message: Any) -> None:
        self.to, self.message = to, message


class Wait:
    """Waits for the next message, unless this peer, whose message is missing, is gone and has none under way."""

    __slots__ = ("peer",)

    def __init__(self, peer: int) -> None:
        self.peer = peer


class Mix:
    """Atomically x_i, x_j <- (x_i + x_j) / 2 with a peer; both states' field `x` is replaced."""

    __slots__ = ("peer",)

    def __init__(self, peer: int) -> None:
        self.peer = peer


class SharedRead:
    """Reads the shared vector without a lock, in `chunks` parts one after another: it may be torn."""

    __slots__ = ("chunks",)

    def __init__(self, chunks: int = 1) -> None:
        self.chunks = chunks


class SharedAdd:
    """Adds to the shared vector without a lock, in `chunks` parts. Adds that are not atomic can lose others' adds."""

    __slots__ = ("atomic", "chunks", "delta")

    def __init__(self, delta: Any, chunks: int = 1, atomic: bool = True) -> None:
        self.delta, self.chunks, self.atomic = delta, chunks, atomic


class Lock:
    """Waits for the one lock of the shared vector; first come, first served."""

    __slots__ = ()


class Unlock:
    """Gives the lock to the next in line."""

    __slots__ = ()


class Stop:
    """The worker leaves for good."""

    __slots__ = ()


class Reply:
    """The server's answer to a worker's `Call`."""

    __slots__ = ("value", "worker")

    def __init__(self, worker: int, value: Any) -> None:
        self.worker, self.value = worker, value


class Cancel:
    """The server gives up on the gradient a worker is computing; its `Grad` is answered with None."""

    __slots__ = ("worker",)

    def __init__(self, worker: int) -> None:
        self.worker = worker


class Applied:
    """This gradient is used, in the update that comes after `version` others."""

    __slots__ = ("gradient", "staleness", "version", "worker", "x")

    def __init__(
        self,
        worker: int,
        gradient: Gradient,
        version: int | None = None,
        x: Any = None,
        staleness: int | None = None,
    ) -> None:
        self.worker, self.gradient, self.version = worker, gradient, version
        self.x = x  # the parameters it is applied to, for the gap
        self.staleness = staleness  # where it is not a difference of versions: set staleness


class Received:
    """A peer's gradient is applied by this worker too. Its samples were counted where it was computed."""

    __slots__ = ("gradient", "staleness", "worker")

    def __init__(self, worker: int, gradient: Gradient, staleness: int | None = None) -> None:
        self.worker, self.gradient, self.staleness = worker, gradient, staleness


class Refused:
    """This gradient was not used."""

    __slots__ = ("gradient", "version", "worker")

    def __init__(self, worker: int, gradient: Gradient, version: int | None = None) -> None:
        self.worker, self.gradient, self.version = worker, gradient, version


class Stepped:
    """One more update was made."""

    __slots__ = ()


ServerEffect = Reply | Cancel | Applied | Refused | Stepped
Exchange = Batch | AllReduce | Send | Wait | Mix | SharedRead | SharedAdd | Lock | Unlock
WorkerEffect = Grad | Call | Exchange | Applied | Stepped | Stop
