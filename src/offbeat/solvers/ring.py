"""Optimal-time asynchronous methods: Ringmaster, Rennala, Ringleader."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from offbeat.core.effects import Applied, Cancel, Gradient, ServerEffect, Stepped
from offbeat.core.reduction import weighted_mean
from offbeat.solvers.backup import fresh
from offbeat.solvers.checks import flag, whole
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


class Ringmaster(ParameterServer):
    """Accept iff tau < R, else discard and send the current x.

    `stops=True`: as soon as a worker's delay reaches R its gradient is cancelled and it restarts at the current x.
    Without stops a worker slower than R fast updates never contributes.
    Maranjyan, Tyurin and Richtarik 2025, "Ringmaster ASGD", Algorithms 4 and 5.
    """

    line = "ASGD that discards gradients with staleness R or more"
    paper = "-"
    cite = ("maranjyan2025ringmaster",)

    def __init__(self, opt: Factory, *, R: int = 8, stops: bool = False) -> None:
        self.R, self.stops = whole("R", R), flag("stops", stops)
        super().__init__(opt, gate=self._young)

    def _young(self, s: Server, arrival: Arrival) -> bool:
        return arrival.tau < self.R

    def on_call(self, s: Server, worker: int, payload: Gradient | None) -> Iterator[ServerEffect]:
        before = s.version
        yield from super().on_call(s, worker, payload)
        if self.stops and s.version > before:
            for i in sorted(s.live - {worker}):
                if s.version - s.sent[i].version == self.R:  # it has just become too old
                    yield Cancel(i)


class Rennala(ParameterServer):
    """Collect S gradients, all at the current x, discard the others; x <- opt(x, their mean): minibatch SGD, exactly.

    Nobody waits: a worker goes on with another batch at the x it is sent. `S=0` takes S = W.
    Tyurin and Richtarik 2023, "Optimal time complexities of parallel stochastic optimization methods".
    """

    line = "a step after S fresh gradients, from whoever is fast"
    paper = "-"
    cite = ("tyurin2023rennala",)

    def __init__(self, opt: Factory, *, S: int = 0) -> None:
        self.S = whole("S", S, 0)
        super().__init__(opt, gate=fresh, collect=self._enough)

    def _enough(self, s: Server) -> int:
        S = self.S or s.world.workers
        return S if len(s.held) >= S else 0


@dataclass(slots=True)
class Table:
    """Ringleader's sums: gradients and their number, by worker; this round's and the next one's."""

    total: dict[int, Any]
    count: dict[int, int]
    next_total: dict[int, Any]
    next_count: dict[int, int]
    stepped: set[int]
    """Workers that have had their step in phase 2; empty in phase 1."""


class Ringleader(ParameterServer):
    """Fair to workers with different data, at any speed.

    Phase 1: collect G_i and b_i, without steps, until every worker has b_i >= 1. Phase 2: n steps
    x <- opt(x, (1/n) sum_i G_i / b_i), the first for the last finisher, then one for each other worker when it reports
    (its gradient joins the table); whoever has had its step sends to the next table. Then next becomes current.
    Delay at most 2 n - 2. Maranjyan and Richtarik 2025, "Ringleader ASGD".
    """

    line = "ASGD over a table of every worker's gradients: right for different data"
    paper = "-"
    cite = ("maranjyan2025ringleader",)
    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held, Table)

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt)

    def on_call(self, s: Server, worker: int, payload: Gradient | None) -> Iterator[ServerEffect]:
        g = payload
        if g is None:
            yield from super().on_call(s, worker, payload)
            return
        t: Table = s.memory.setdefault("table", Table({}, {}, {}, {}, set()))
        s.samples += g.samples
        yield Applied(worker, g, s.version, s.x)
        if worker in t.stepped:
            _add(t.next_total, t.next_count, worker, g.value)
            yield self._send(s, worker)
            return
        _add(t.total, t.count, worker, g.value)
        if not s.live <= set(t.count):  # phase 1
            yield self._send(s, worker)
            return
        means = [t.total[i] / t.count[i] for i in sorted(t.count)]
        s.x = s.opt.step(weighted_mean(means, [1.0] * len(means)), self.rate(s.samples), s.samples)
        s.version += 1
        yield Stepped()
        t.stepped.add(worker)
        if s.live <= t.stepped:
            s.memory["table"] = Table(t.next_total, t.next_count, {}, {}, set())
        yield self._send(s, worker)


def _add(total: dict[int, Any], count: dict[int, int], worker: int, g: Any) -> None:
    total[worker] = total[worker] + g if worker in total else g
    count[worker] = count.get(worker, 0) + 1
