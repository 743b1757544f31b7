"""EA-wild by groups of workers: synchronous inside, each group a replica on a spring."""

from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import AllReduce, Applied, Grad, Stepped
from offbeat.core.seeds import generator
from offbeat.core.solver import Round, World
from offbeat.optim.clipping import clipped
from offbeat.optim.steppers import Factory
from offbeat.solvers.ea_wild import EAWild
from offbeat.solvers.elastic import Centre, TiedReplica
from offbeat.solvers.options import choice, whole, without_effect
from offbeat.solvers.replica import Replica


@dataclass(slots=True)
class Member(TiedReplica):
    """A worker that knows its group: the first of the members exchanges with the centre for all."""

    members: tuple[int, ...] = ()


class EAWildGroups(EAWild[Member]):
    """EA-wild by groups: d = alpha (x_j - xc); xc <- xc + d without a lock; x_j <- opt(x_j - d, mean of g(x_j)).

    Inside a group all is synchronous: replicas are equal to the bit, gradients are averaged by all-reduce, and one
    member exchanges for all. A worker alone in its group runs Algorithm 1 of wongpanich2020 as it stands in
    `ea_wild.py`. The centre is evaluated; its version counts exchanges.

    Args:
        opt: makes the optimizer of each worker; its learning rate is eta.
        alpha: alpha, the strength of the spring. Default: 0.9 over the number of groups, unless there is a rho.
        rho: rho, in place of alpha: alpha = eta rho, which moves with the schedule of eta. Default: none.
        group: workers in a group; workers can join later only where it is 1. Default: 1.
        grouping: "fixed" (neighbours) or "random" (drawn from the seed). Default: "fixed".
        period: tau, the steps between two exchanges with the centre. Default: 1.
        locked: whether an exchange takes the lock, so that exchanges queue. Default: false.
        chunks: the parts in which the centre is read and added to, so that exchanges interleave. Default: 8.
        atomic: whether adds are; otherwise some are lost. Default: true.
    """

    asks = EAWild.asks | {AllReduce}
    records: ClassVar[tuple[type, ...]] = (Member, Centre)
    replica: ClassVar[type[Replica]] = Member

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
        super().__init__(opt, alpha=alpha, rho=rho, period=period, locked=locked, chunks=chunks, atomic=atomic)
        self.group, self.grouping = whole("group", group), choice("grouping", grouping, ("fixed", "random"))
        if self.group == 1:
            without_effect("grouping", grouping, "fixed", "with solver.group=1")
        self.takes_in = self.group == 1

    def springs(self, world: World) -> int:
        return -(-world.workers // self.group)

    def init_worker(self, rank: int, x0: Any, world: World) -> Member:
        w = super().init_worker(rank, x0, world)
        order = list(range(world.workers))
        if self.grouping == "random":
            order = [int(i) for i in generator(world.seed, "topology", 0).permutation(world.workers)]
        start = order.index(rank) // self.group * self.group
        w.members = tuple(sorted(order[start : start + self.group]))
        return w

    def round(self, w: Member) -> Round:
        return super().round(w) if len(w.members) == 1 else self._together(w)

    def _together(self, w: Member) -> Round:
        d = None
        if w.k % self.period == 0:
            leads = w.rank == w.members[0]
            d = (yield from self.exchange(w)) if leads else None
            d = (yield AllReduce(d, 1.0 if leads else 0.0, w.members)).value  # the leader tells its group
        g = yield Grad(w.x)
        mean = yield AllReduce(g.value, g.samples, w.members)
        w.work = mean.work + mean.weight  # one clock for the group
        w.members = mean.members  # without those who were lost
        w.x = self.moved(w, w.x if d is None else w.x - d, clipped(mean.value, self.clip))
        w.k += 1
        yield Applied(w.rank, g)
        if w.rank == w.members[0]:
            yield Stepped()
