"""Ringmaster ASGD: old gradients are dropped, or never finished."""

from collections.abc import Iterator
from typing import Any

from offbeat.core.effects import Cancel, ServerEffect
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import flag, whole
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server, Worker


class Ringmaster(ParameterServer[Server, Worker]):
    """Accept iff tau < R, else discard and send the current x.

    Without stops a worker slower than R fast updates never contributes.
    Maranjyan, Tyurin and Richtarik 2025, "Ringmaster ASGD", Algorithms 4 and 5.

    Args:
        opt: makes the server's optimizer.
        R: R, the staleness from which on a gradient is discarded. Default: 8.
        stops: whether a gradient is cancelled as soon as its delay reaches R, and its worker restarts at the current
            x (Algorithm 5). Default: false.
    """

    line = "ASGD that discards gradients with staleness R or more"
    paper = "-"
    needs_answer = None
    cite = ("maranjyan2025ringmaster",)

    def __init__(self, opt: Factory, *, R: int = 8, stops: bool = False) -> None:
        self.R, self.stops = whole("R", R), flag("stops", stops)
        if self.stops:
            self.needs_answer = "with solver.stops, what a worker was sent last tells how old its gradient is"
        super().__init__(opt, gate=self._young)

    def _young(self, s: Server, arrival: Arrival) -> bool:
        return arrival.tau < self.R

    def on_call(self, s: Server, worker: int, payload: Any) -> Iterator[ServerEffect]:
        before = s.version
        yield from super().on_call(s, worker, payload)
        if self.stops and s.version > before:
            for i in sorted(s.live - {worker}):
                if s.version - s.sent[i].version == self.R:  # it has just become too old
                    yield Cancel(i)
