"""What a rule may ask for, and what it may announce. An engine is an interpreter of these requests.

A worker's rule is a generator: it yields an effect and is sent the answer. The server's rule yields what should
happen next. They are msgspec's structs: made in C, because a timing-only simulation makes a million a second, and out
of the garbage collector's sight, because they hold no cycles.

| effect | asked by | answer |
|---|---|---|
| `Grad(at, version)` | worker | a `Gradient`, or None when the server cancelled it |
| `Batch()` | worker | None, when the batch for its next gradient is at hand; `Grad` alone waits for it, too |
| `Call(payload)` | worker | what the server's `Reply` carries; the server may hold it back |
| `Push(payload)` | worker | None, at once: the message is under way, and the rule may compute meanwhile |
| `Await()` | worker | what the server's `Reply` to the push carries, in the round of the push |
| `AllReduce(value, weight, members, group)` | worker | `Reduced`: the weighted mean over the members |
| `Send(to, message)` | worker | the receivers that are there, at once; their rules see it in `on_message` |
| `Wait(peer)` | worker | True after the next message, from whomever; False if that peer is gone |
| `Mix(peer)` | worker | None, when both workers have the mean of their parameters |
| `SharedRead()` | worker | a `View` of the shared vector, perhaps torn: no lock, chunk by chunk |
| `SharedAdd(delta)` | worker | how many adds were finished before this one |
| `Lock()`, `Unlock()` | worker | None; first come, first served |
| `Applied(worker, gradient, version)` | both | None: an announcement that becomes one row of the trace |
| `Received(worker, gradient, staleness)` | worker | None: likewise, where a peer's gradient is applied too |
| `Refused(worker, gradient, version)` | both | None: likewise, for a gradient that was not used |
| `Stepped()` | both | None: one more update was made |
| `Reply(worker, value)`, `Cancel(worker)` | server | None |
| `Stop()` | worker | never: the worker leaves |
"""

from copy import copy
from typing import Any

from msgspec import Struct


class Gradient(Struct, eq=False, gc=False):
    """A stochastic gradient, where it came from, and what it was computed on."""

    # What the task computed ...
    value: Any
    loss: float
    samples: int
    correct: int | None = None
    norm: float | None = None
    buffers: Any = None  # taken by the engine, which keeps each worker's own
    # ... and what the engine knows of it.
    at: Any = None  # the point itself, shared and never mutated
    version: int | None = None  # version of the point, where the method has versions
    source: int = 0  # which mini-batch: `draw` of `source`
    draw: int = 0
    started: float = 0.0
    computed: float = 0.0
    work: int = 0  # samples processed by everybody when this gradient was delivered: the work clock
    parts: tuple["Gradient", ...] = ()  # what it was made of, where a worker pushes several at once

    def carrying(self, value: Any) -> "Gradient":
        """The same gradient with another value: what a rule was given is never changed."""
        made = copy(self)
        made.value = value
        return made


class View(Struct, eq=False, gc=False):
    """What the server publishes: parameters (never mutated again) and their version."""

    x: Any
    version: int


class Grad(Struct, eq=False, gc=False):
    """Compute a gradient at a point, on the worker's next mini-batch."""

    at: Any
    version: int | None = None


class Batch(Struct, eq=False, gc=False):
    """Waits for the next mini-batch where a generator node makes them, for rules that read their point after it."""


class Call(Struct, eq=False, gc=False):
    """Send a payload to the server and wait for its reply. None as payload is a pull."""

    payload: Any = None


class Push(Struct, eq=False, gc=False):
    """Send a payload to the server and go on; the rule asks for the answer with `Await`, before its round ends."""

    payload: Any = None


class Await(Struct, eq=False, gc=False):
    """Wait for the server's answer to the push of this round, if it is not there yet."""


class AllReduce(Struct, eq=False, gc=False):
    """The mean of the members' `value`, weighted by `weight`; everybody gets the same bits.

    `members` are the workers that take part, those of them that are alive (None: all). Summed in worker order or, with
    `group`, within groups of so many and then over the groups, as a hierarchical all-reduce does. A member of weight 0
    only listens; if all but one do, it is a broadcast, and if all do, the mean is None.
    """

    value: Any
    weight: float = 1.0
    members: tuple[int, ...] | None = None
    group: int | None = None


class Reduced(Struct, eq=False, gc=False):
    """The answer to an `AllReduce`: the mean, the sum of the weights, and who took part."""

    value: Any
    weight: float
    members: tuple[int, ...]
    work: int  # samples processed by everybody when it was made: a work clock that members agree on


class Send(Struct, eq=False, gc=False):
    """A message to other workers, not waited for. Messages of one sender to one receiver arrive in order."""

    to: tuple[int, ...]
    message: Any


class Wait(Struct, eq=False, gc=False):
    """Waits for the next message, unless this peer, whose message is missing, is gone and has none under way."""

    peer: int


class Mix(Struct, eq=False, gc=False):
    """Atomically x_i, x_j <- (x_i + x_j) / 2 with a peer; both states' field `x` is replaced."""

    peer: int


class SharedRead(Struct, eq=False, gc=False):
    """Reads the shared vector without a lock, in `chunks` parts one after another: it may be torn."""

    chunks: int = 1


class SharedAdd(Struct, eq=False, gc=False):
    """Adds to the shared vector without a lock, in `chunks` parts. Adds that are not atomic can lose others' adds."""

    delta: Any
    chunks: int = 1
    atomic: bool = True


class Lock(Struct, eq=False, gc=False):
    """Waits for the one lock of the shared vector; first come, first served."""


class Unlock(Struct, eq=False, gc=False):
    """Gives the lock to the next in line."""


class Stop(Struct, eq=False, gc=False):
    """The worker leaves for good."""


class Reply(Struct, eq=False, gc=False):
    """The server's answer to a worker's `Call`."""

    worker: int
    value: Any


class Cancel(Struct, eq=False, gc=False):
    """The server gives up on the gradient a worker is computing; its `Grad` is answered with None."""

    worker: int


class Applied(Struct, eq=False, gc=False):
    """This gradient is used, in the update that comes after `version` others."""

    worker: int
    gradient: Gradient
    version: int | None = None
    x: Any = None  # the parameters it is applied to, for the gap
    staleness: int | None = None  # where it is not a difference of versions: set staleness


class Received(Struct, eq=False, gc=False):
    """A peer's gradient is applied by this worker too. Its samples were counted where it was computed."""

    worker: int
    gradient: Gradient
    staleness: int | None = None


class Refused(Struct, eq=False, gc=False):
    """This gradient was not used."""

    worker: int
    gradient: Gradient
    version: int | None = None


class Stepped(Struct, eq=False, gc=False):
    """One more update was made."""


ServerEffect = Reply | Cancel | Applied | Refused | Stepped
Exchange = Batch | Push | Await | AllReduce | Send | Wait | Mix | SharedRead | SharedAdd | Lock | Unlock
EVERY_REQUEST: frozenset[type] = frozenset(
    {Grad, Batch, Call, Push, Await, AllReduce, Send, Wait, Mix, SharedRead, SharedAdd, Lock, Unlock, Stop}
)
"""What a worker's rule may ask an engine for. Announcements are understood everywhere."""
WorkerEffect = Grad | Call | Exchange | Applied | Refused | Stepped | Stop
