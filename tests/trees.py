"""A method that sums in groups, for tests of all-reduce: no solver of ours asks for groups of its own."""

from offbeat.core.effects import AllReduce, Applied, Grad, Stepped
from offbeat.solvers.replica import StepsOnWorkers


class Tree(StepsOnWorkers):
    """Synchronous SGD: x_i <- opt(x_i, mean of all gradients), summed within groups of two and then over the groups."""

    asks = frozenset({Grad, AllReduce})

    def round(self, w):
        g = yield Grad(w.x)
        mean = yield AllReduce(g.value, g.samples + w.rank, group=2)  # weights differ, so that order matters
        w.work = mean.work
        w.x = self.moved(w, w.x, mean.value)
        w.k += 1
        yield Applied(w.rank, g)
        if w.rank == mean.members[0]:
            yield Stepped()
