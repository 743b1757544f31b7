"""Ringleader ASGD: fair to workers with different data."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core.effects import Applied, ServerEffect, Stepped
from offbeat.core.reduction import weighted_mean
from offbeat.optim.steppers import Factory
from offbeat.solvers.parameter_server import Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class GradientSums:
    """G_i and b_i: the sum of each worker's gradients, and their number."""

    total: dict[int, Any] = field(default_factory=dict)
    count: dict[int, int] = field(default_factory=dict)

    def add(self, worker: int, g: Any) -> None:
        self.total[worker] = self.total[worker] + g if worker in self.total else g
        self.count[worker] = self.count.get(worker, 0) + 1

    def means(self) -> list[Any]:
        """G_i / b_i, in worker order."""
        return [self.total[i] / self.count[i] for i in sorted(self.count)]


@dataclass(slots=True)
class RingleaderServer(Server):
    """A server with two tables of gradients: the one that its steps use, and the next one."""

    current: GradientSums = field(default_factory=GradientSums)
    following: GradientSums = field(default_factory=GradientSums)
    stepped: set[int] = field(default_factory=set)
    """Workers that have had their step in phase 2; empty in phase 1."""


class Ringleader(ParameterServer[RingleaderServer, Worker]):
    """Fair to workers with different data, at any speed.

    Phase 1: collect G_i and b_i, without steps, until every worker has b_i >= 1. Phase 2: n steps
    x <- opt(x, (1/n) sum_i G_i / b_i), the first for the last finisher, then one for each other worker when it reports
    (its gradient joins the table); whoever has had its step sends to the next table. Then next becomes current.
    Delay at most 2 n - 2. Maranjyan and Richtarik 2025, "Ringleader ASGD".

    Args:
        opt: makes the server's optimizer.
    """

    line = "ASGD over a table of every worker's gradients: right for different data"
    paper = "-"
    needs_answer = "its bound of the delay, 2 n - 2, is for one gradient of each worker, and there would be two"
    cite = ("maranjyan2025ringleader",)
    vectors = 3
    records: ClassVar[tuple[type, ...]] = (RingleaderServer, GradientSums, Worker, Held)
    server_state = RingleaderServer

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt)

    def on_call(self, s: RingleaderServer, worker: int, payload: Any) -> Iterator[ServerEffect]:
        g = payload
        if g is None:
            yield from super().on_call(s, worker, g)
            return
        s.samples += g.samples
        yield Applied(worker, g, s.version, s.x)
        if worker in s.stepped:
            s.following.add(worker, g.value)
        else:
            s.current.add(worker, g.value)
            if s.live <= s.current.count.keys():  # phase 2
                yield self._step_for(s, worker)
        yield self.send(s, worker)

    def _step_for(self, s: RingleaderServer, worker: int) -> Stepped:
        means = s.current.means()
        s.x = s.opt.step(weighted_mean(means, [1.0] * len(means)), self.rate(s.samples), s.samples)
        s.version += 1
        s.stepped.add(worker)
        if s.live <= s.stepped:
            s.current, s.following, s.stepped = s.following, GradientSums(), set()
        return Stepped()
