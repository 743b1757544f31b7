"""Synchronous SGD by all-reduce in groups."""

from offbeat.optim.steppers import Factory
from offbeat.solvers.allreduce import AllReduceSGD
from offbeat.solvers.options import whole


class Hierarchical(AllReduceSGD):
    """All-reduce in groups: sums within groups, then over their leaders, then back.

    The last group may be smaller: it is sums that are added up, not means of groups. wongpanich2020, section 3.2, used
    groups of 4, 8 or 16 where a ring of more than about a thousand machines had become slow.

    Args:
        opt: makes the optimizer of each worker.
        group: workers in a group. Default: 4.
    """

    line = "synchronous SGD by all-reduce in groups, then among their leaders"

    def __init__(self, opt: Factory, *, group: int = 4) -> None:
        super().__init__(opt)
        self.group = whole("group", group)
