"""Stale synchronous parallel."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from offbeat.core.effects import ServerEffect
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import whole
from offbeat.solvers.parameter_server import Arrival, Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class ClockedServer(Server):
    """A server that knows how many rounds each worker has finished."""

    clocks: dict[int, int] = field(default_factory=dict)


class SSP(ParameterServer[ClockedServer, Worker]):
    """A worker that has finished clock c may go on only while c - min_j c_j <= s; its reply is held until then.

    s = 0 is lock-step (each gradient still a step of its own, unlike `sync`); a large s is ASGD.
    Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server" [reconstructed].

    Args:
        opt: makes the server's optimizer.
        s: s, how many rounds the fastest may be ahead of the slowest. Default: 3.
    """

    line = "ASGD where the fastest may be at most s rounds ahead of the slowest"
    paper = "-"
    needs_answer = "a worker that is too far ahead is held back, and would compute all the same"
    cite = ("ho2013ssp",)
    records: ClassVar[tuple[type, ...]] = (ClockedServer, Worker, Held)
    server_state = ClockedServer

    def __init__(self, opt: Factory, *, s: int = 3) -> None:
        self.s = whole("s", s, 0)
        super().__init__(opt, release=self._release)

    def _release(self, s: ClockedServer, arrival: Arrival, stepping: bool) -> list[int]:
        s.clocks[arrival.worker] = s.clocks.get(arrival.worker, self._slowest(s)) + 1
        s.waiting.add(arrival.worker)
        return self._free(s)

    def _slowest(self, s: ClockedServer) -> int:
        """The smallest clock; a worker that joins late starts there."""
        return min((s.clocks.get(i, 0) for i in s.live if i in s.clocks or i in s.world.present), default=0)

    def _free(self, s: ClockedServer) -> list[int]:
        slowest = self._slowest(s)
        free = sorted(i for i in s.waiting if s.clocks[i] - slowest <= self.s)
        s.waiting.difference_update(free)
        return free

    def on_lost(self, s: ClockedServer, worker: int) -> Iterator[ServerEffect]:
        """The dead must leave the minimum, or everybody waits for them."""
        s.clocks.pop(worker, None)
        yield from super().on_lost(s, worker)
        for i in self._free(s):
            yield self.send(s, i)
