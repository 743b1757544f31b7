"""Stale synchronous parallel."""

from collections.abc import Iterator

from offbeat.core.effects import ServerEffect
from offbeat.solvers.checks import whole
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server


class SSP(ParameterServer):
    """A worker that has finished clock c may go on only while c - min_j c_j <= s; its reply is held until then.

    s = 0 is lock-step (each gradient still a step of its own, unlike `sync`); a large s is ASGD.
    Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server" [reconstructed].
    """

    line = "ASGD where the fastest may be at most s rounds ahead of the slowest"
    paper = "-"
    cite = ("ho2013ssp",)

    def __init__(self, opt: Factory, *, s: int = 3) -> None:
        self.s = whole("s", s, 0)
        super().__init__(opt, release=self._release)

    def _release(self, s: Server, arrival: Arrival, stepping: bool) -> list[int]:
        clocks = s.memory.setdefault("clock", {})
        clocks[arrival.worker] = clocks.get(arrival.worker, self._slowest(s)) + 1
        s.waiting.add(arrival.worker)
        return self._free(s)

    def _slowest(self, s: Server) -> int:
        """The smallest clock; a worker that joins late starts there."""
        clocks = s.memory.get("clock", {})
        return min((clocks.get(i, 0) for i in s.live if i in clocks or i in s.world.present), default=0)

    def _free(self, s: Server) -> list[int]:
        clocks, slowest = s.memory["clock"], self._slowest(s)
        free = sorted(i for i in s.waiting if clocks[i] - slowest <= self.s)
        s.waiting.difference_update(free)
        return free

    def on_lost(self, s: Server, worker: int) -> Iterator[ServerEffect]:
        """The dead must leave the minimum, or everybody waits for them."""
        s.memory.setdefault("clock", {}).pop(worker, None)
        yield from super().on_lost(s, worker)
        for i in self._free(s):
            yield self._send(s, i)
