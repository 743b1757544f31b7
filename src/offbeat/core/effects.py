"""What a rule may ask for, and what it may announce. An engine is an interpreter of these requests.

A worker's rule is a generator: it yields an effect and is sent the answer. The server's rule yields what should
happen next. Plain classes with slots, because a timing-only simulation makes hundreds of thousands a second.

| effect | asked by | answer |
|---|---|---|
| `Grad(at, version)` | worker | a `Gradient`, or None when the server cancelled it |
| `Call(payload)` | worker | what the server's `Reply` carries; the server may hold it back |
| `AllReduce(value, weight)` | worker | the weighted mean over the live workers, summed in worker order |
| `Applied(worker, gradient, version)` | both | None: an announcement that becomes one row of the trace |
| `Refused(worker, gradient, version)` | server | None: likewise, for a gradient that was not used |
| `Stepped()` | both | None: one more update was made |
| `Reply(worker, value)`, `Cancel(worker)` | server | None |
| `Stop()` | worker | never: the worker leaves |
"""

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


class Call:
    """Send a payload to the server and wait for its reply. None as payload is a pull."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any = None) -> None:
        self.payload = payload


class AllReduce:
    """The mean of everybody's `value`, weighted by `weight`, in worker order; everybody gets the same bits."""

    __slots__ = ("value", "weight")

    def __init__(self, value: Any, weight: float = 1.0) -> None:
        self.value, self.weight = value, weight


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

    __slots__ = ("gradient", "version", "worker", "x")

    def __init__(self, worker: int, gradient: Gradient, version: int | None = None, x: Any = None) -> None:
        self.worker, self.gradient, self.version = worker, gradient, version
        self.x = x  # the parameters it is applied to, for the gap


class Refused:
    """This gradient was not used."""

    __slots__ = ("gradient", "version", "worker")

    def __init__(self, worker: int, gradient: Gradient, version: int | None = None) -> None:
        self.worker, self.gradient, self.version = worker, gradient, version


class Stepped:
    """One more update was made."""

    __slots__ = ()


ServerEffect = Reply | Cancel | Applied | Refused | Stepped
WorkerEffect = Grad | Call | AllReduce | Applied | Stepped | Stop
