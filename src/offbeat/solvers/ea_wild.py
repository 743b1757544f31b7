"""EA-wild: elastic averaging over shared memory, without a lock."""

from collections.abc import Generator
from typing import Any

from offbeat.core.effects import Grad, Lock, SharedAdd, SharedRead, Unlock
from offbeat.core.solver import Round
from offbeat.optim.steppers import Factory
from offbeat.solvers.elastic import Elastic, T
from offbeat.solvers.options import MOST_CHUNKS, flag, whole


class EAWild(Elastic[T]):
    """d = alpha (x_j - xc); xc <- xc + d without a lock; x_j <- opt(x_j - d, g(x_j)).

    wongpanich2020, Algorithm 1 (period 1), with every worker for itself; groups are in `ea_wild_groups.py`. The centre
    is evaluated; its version counts exchanges.

    Args:
        opt: makes the optimizer of each worker; its learning rate is eta.
        alpha: alpha, the strength of the spring. Default: 0.9 over the number of springs, unless there is a rho.
        rho: rho, in place of alpha: alpha = eta rho, which moves with the schedule of eta. Default: none.
        period: tau, the steps between two exchanges with the centre. Default: 1.
        locked: whether an exchange takes the lock, so that exchanges queue. Default: false.
        chunks: the parts in which the centre is read and added to, so that exchanges interleave. Default: 8.
        atomic: whether adds are; otherwise some are lost. Default: true.
    """

    line = "EASGD by groups over shared memory, without a lock"
    paper = "wongpanich2020"
    cite = ("wongpanich2020", "zhang2015easgd")
    vectors = 3
    asks = frozenset({Grad, SharedRead, SharedAdd, Lock, Unlock})

    def __init__(
        self,
        opt: Factory,
        *,
        alpha: float | None = None,
        rho: float | None = None,
        period: int = 1,
        locked: bool = False,
        chunks: int = 8,
        atomic: bool = True,
    ) -> None:
        super().__init__(opt, alpha, rho, period)
        self.locked, self.atomic = flag("locked", locked), flag("atomic", atomic)
        self.chunks = whole("chunks", chunks, most=MOST_CHUNKS)

    def round(self, w: T) -> Round:
        if w.x is None:  # it has just joined, and begins at the centre
            w.x = (yield SharedRead(self.chunks)).x
            return
        d = (yield from self.exchange(w)) if w.k % self.period == 0 else None
        g = yield Grad(w.x)
        yield from self.step(w, w.x if d is None else w.x - d, g)

    def exchange(self, w: T) -> Generator[Any, Any, Any]:
        """Moves the centre by d, which is for the worker to subtract."""
        if self.locked:
            yield Lock()
        xc = (yield SharedRead(self.chunks)).x
        d = self.strength(w) * (w.x - xc)
        yield SharedAdd(d, self.chunks, self.atomic)
        if self.locked:
            yield Unlock()
        return d
