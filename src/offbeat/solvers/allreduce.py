"""Synchronous SGD without a server: gradients are averaged by all-reduce, and every worker takes the same step."""

from collections.abc import Mapping
from typing import Any, ClassVar

from offbeat.core.effects import AllReduce, Applied, Grad, Stepped
from offbeat.core.solver import Round, World
from offbeat.solvers.checks import nobody_joins, whole
from offbeat.solvers.local import Local, Replica
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import clipped


class AllReduceSGD(Local):
    """x <- opt(x, sum_i n_i g_i / sum_i n_i) on every worker: parameters and optimizers stay equal to the bit.

    Summed in worker order, weighted by sample counts; a ring by default (`cluster.allreduce` says what it costs). A
    lost worker leaves the ring. The version counts steps, and no gradient is stale. wongpanich2020, section 3.2.
    """

    line = "synchronous SGD by ring all-reduce, without a server"
    paper = "wongpanich2020"
    cite: ClassVar[tuple[str, ...]] = ("wongpanich2020",)
    asks: ClassVar[frozenset[type]] = frozenset({Grad, AllReduce})
    group: int | None = None

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt)

    def init_server(self, x0: Any, world: World) -> Any:
        nobody_joins(world, "synchronous SGD by all-reduce")
        return super().init_server(x0, world)

    def round(self, w: Replica) -> Round:
        g = yield Grad(w.x, w.k)
        value = g.value if self.clip is None else clipped(g.value, self.clip)
        mean = yield AllReduce(value, g.samples, group=self.group)
        w.work = mean.work + mean.weight
        w.x = self.moved(w, w.x, mean.value)
        yield Applied(w.rank, g, w.k)
        w.k += 1
        if w.rank == mean.members[0]:
            yield Stepped()

    def parameters(self, s: Any, workers: Mapping[int, Replica]) -> Any:
        """Anybody's: they are equal."""
        return workers[min(workers)].x if workers else s.x


class Hierarchical(AllReduceSGD):
    """All-reduce in groups of `group`: sums within groups, then over their leaders, then back.

    The last group may be smaller: it is sums that are added up, not means of groups. wongpanich2020, section 3.2, used
    groups of 4, 8 or 16 where a ring of more than about a thousand machines had become slow.
    """

    line = "synchronous SGD by all-reduce in groups, then among their leaders"

    def __init__(self, opt: Factory, *, group: int = 4) -> None:
        super().__init__(opt)
        self.group = whole("group", group)
