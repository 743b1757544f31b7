"""EA-wild: elastic averaging over shared memory, without a lock, by groups of workers."""

from collections.abc import Generator
from typing import Any, ClassVar

from offbeat.core.effects import AllReduce, Applied, Grad, Lock, SharedAdd, SharedRead, Stepped, Unlock
from offbeat.core.seeds import generator
from offbeat.core.solver import Round, World
from offbeat.solvers.checks import choice, flag, nobody_joins, whole
from offbeat.solvers.easgd import Elastic
from offbeat.solvers.local import Replica
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import clipped


class EAWild(Elastic):
    """d = alpha (x_j - xc); xc <- xc + d without a lock; x_j <- opt(x_j - d, mean of the group's g(x_j)).

    Workers form groups of `group` (`grouping="fixed"`: neighbours; `"random"`: drawn from the seed). Inside a group all
    is synchronous: replicas are equal to the bit, gradients are averaged by all-reduce, and one member exchanges for
    all, every `period` steps. The centre is read and added to in `chunks` parts, so that exchanges interleave; if adds
    are not `atomic`, some are lost. `locked=True` takes the lock around the exchange: exchanges queue.
    wongpanich2020, Algorithm 1 (period 1). The centre is evaluated; its version counts exchanges.
    """

    line = "EASGD by groups over shared memory, without a lock"
    paper = "wongpanich2020"
    cite = ("wongpanich2020", "zhang2015easgd")
    asks: ClassVar[frozenset[type]] = frozenset({Grad, AllReduce, SharedRead, SharedAdd, Lock, Unlock})

    def __init__(
        self,
        opt: Factory,
        *,
        alpha: float | None = None,
        rho: float | None = None,
        group: int = 1,
        grouping: str = "fixed",
        period: int = 1,
        locked: bool = False,
        chunks: int = 8,
        atomic: bool = True,
    ) -> None:
        super().__init__(opt, alpha, rho, period)
        self.group, self.grouping = whole("group", group), choice("grouping", grouping, ("fixed", "random"))
        self.locked, self.atomic = flag("locked", locked), flag("atomic", atomic)
        self.chunks = whole("chunks", chunks)

    def replicas(self, world: World) -> int:
        return -(-world.workers // self.group)

    def init_server(self, x0: Any, world: World) -> Any:
        if self.group > 1:
            nobody_joins(world, "ea-wild with groups")
        return super().init_server(x0, world)

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        w = super().init_worker(rank, x0, world)
        order = list(range(world.workers))
        if self.grouping == "random":
            order = [int(i) for i in generator(world.seed, "topology", 0).permutation(world.workers)]
        start = order.index(rank) // self.group * self.group
        w.memory["members"] = tuple(sorted(order[start : start + self.group]))
        return w

    def round(self, w: Replica) -> Round:
        if w.x is None:  # it has just joined, and begins at the centre
            w.x = (yield SharedRead(self.chunks)).x
            return
        members: tuple[int, ...] = w.memory["members"]
        leads = w.rank == members[0]
        d = None
        if w.k % self.period == 0:
            d = (yield from self._exchange(w)) if leads else None
            if len(members) > 1:  # the leader tells its group
                d = (yield AllReduce(d, 1.0 if leads else 0.0, members)).value
        g = yield Grad(w.x)
        value, w.work = g.value, g.work + g.samples
        if len(members) > 1:
            mean = yield AllReduce(value, g.samples, members)
            value, w.work = mean.value, mean.work + mean.weight  # one clock for the group
            w.memory["members"] = mean.members  # without those who were lost
        w.x = self.moved(w, w.x if d is None else w.x - d, value if self.clip is None else clipped(value, self.clip))
        w.k += 1
        yield Applied(w.rank, g)
        if w.rank == w.memory["members"][0]:
            yield Stepped()

    def _exchange(self, w: Replica) -> Generator[Any, Any, Any]:
        if self.locked:
            yield Lock()
        xc = (yield SharedRead(self.chunks)).x
        d = self.strength(w) * (w.x - xc)
        yield SharedAdd(d, self.chunks, self.atomic)
        if self.locked:
            yield Unlock()
        return d
