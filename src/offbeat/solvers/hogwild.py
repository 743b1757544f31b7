"""Hogwild!: threads read and add to one shared vector, without a lock."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import Applied, Grad, Lock, SharedAdd, SharedRead, Stepped, Unlock
from offbeat.core.solver import Round, Shown, Solver, World
from offbeat.optim.clipping import clipped
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import MOST_CHUNKS, additive, flag, whole


@dataclass(slots=True)
class Shared:
    """The shared vector, and how many adds to it were finished."""

    x: Any
    version: int = 0


@dataclass(slots=True)
class Thread:
    """A worker: all it keeps is in the shared vector."""

    rank: int


class Hogwild(Solver):
    """Read x; g = g(x); x <- x - eta g, added component by component while others read and add.

    Reads and adds take `cluster.memory` a pass over the vector, and a read may be torn. The version counts finished
    adds; staleness is the number of adds finished between the beginning of the read and the end of the add.
    Recht et al. 2011, "Hogwild!: a lock-free approach to parallelizing stochastic gradient descent"; wongpanich2020.

    Args:
        opt: plain SGD; its learning rate is eta.
        locked: whether each pass takes the lock: then reads are whole, and threads queue. Default: false.
        chunks: the parts in which the vector is read and added to. Default: 8.
        atomic: whether adds are; otherwise one that another overtakes is lost (`lost_share` in the summary).
            Default: true.

    An attribute, and `solver.clip` reaches it from outside:

    Args:
        clip: bound of a gradient's norm before it is added. Default: none.
    """

    line = "threads add to a shared vector without a lock"
    paper = "wongpanich2020"
    cite = ("recht2011hogwild",)
    vectors = 1
    records: ClassVar[tuple[type, ...]] = (Shared, Thread)
    asks = frozenset({Grad, SharedRead, SharedAdd, Lock, Unlock})
    clip: float | None = None

    def __init__(self, opt: Factory, *, locked: bool = False, chunks: int = 8, atomic: bool = True) -> None:
        self.eta = additive(opt, "hogwild", "threads share no state but x, and only additions commute")
        self.locked, self.atomic = flag("locked", locked), flag("atomic", atomic)
        self.chunks = whole("chunks", chunks, most=MOST_CHUNKS)

    def init_server(self, x0: Any, world: World) -> Shared:
        return Shared(x0)

    def init_worker(self, rank: int, x0: Any, world: World) -> Thread:
        return Thread(rank)

    def round(self, w: Thread) -> Round:
        view = yield from self._alone(SharedRead(self.chunks))
        g = yield Grad(view.x, view.version)
        eta = self.eta * self.rate(g.work + g.samples)
        d = -eta * clipped(g.value, self.clip)
        version = yield from self._alone(SharedAdd(d, self.chunks, self.atomic))
        yield Applied(w.rank, g, version)
        yield Stepped()

    def _alone(self, effect: SharedRead | SharedAdd) -> Generator[Any, Any, Any]:
        """The effect, under the lock if there is one."""
        if not self.locked:
            return (yield effect)
        yield Lock()
        answer = yield effect
        yield Unlock()
        return answer

    def rate_in_place(self) -> Callable[[float], float] | None:
        in_place = not self.locked and self.clip is None
        return (lambda work: self.eta * self.rate(work)) if in_place else None

    def version(self, s: Shared) -> int:
        return s.version

    def parameters(self, s: Shared, workers: Mapping[int, Shown]) -> Any:
        return s.x

    def lr(self, s: Shared, work: float) -> float:
        return self.eta * self.rate(work)
