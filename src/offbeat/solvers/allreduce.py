"""Synchronous SGD without a server: gradients are averaged by all-reduce, and every worker takes the same step."""

from collections.abc import Mapping
from typing import Any, ClassVar

from offbeat.core.effects import AllReduce, Applied, Grad, Stepped
from offbeat.core.solver import Round, Shown
from offbeat.optim.clipping import clipped
from offbeat.optim.steppers import Factory
from offbeat.solvers.replica import Replica, StepsOnWorkers


class AllReduceSGD(StepsOnWorkers[Replica]):
    """x <- opt(x, sum_i n_i g_i / sum_i n_i) on every worker: parameters and optimizers stay equal to the bit.

    Summed in worker order, weighted by sample counts; a ring by default (`cluster.allreduce` says what it costs). A
    lost worker leaves the ring. The version counts steps, and no gradient is stale. wongpanich2020, section 3.2.

    Args:
        opt: makes the optimizer of each worker.
    """

    line = "synchronous SGD by ring all-reduce, without a server"
    paper = "wongpanich2020"
    cite: ClassVar[tuple[str, ...]] = ("wongpanich2020",)
    asks = frozenset({Grad, AllReduce})
    barrier = True
    takes_in = False
    group: int | None = None

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt)

    def round(self, w: Replica) -> Round:
        g = yield Grad(w.x, w.k)
        mean = yield AllReduce(clipped(g.value, self.clip), g.samples, group=self.group)
        w.work = mean.work + mean.weight
        w.x = self.moved(w, w.x, mean.value)
        yield Applied(w.rank, g, w.k)
        w.k += 1
        if w.rank == mean.members[0]:
            yield Stepped()

    def parameters(self, s: Any, workers: Mapping[int, Shown]) -> Any:
        """Anybody's: they are equal."""
        return workers[min(workers)].x if workers else s.x
