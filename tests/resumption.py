"""What tests of interrupted and damaged runs share."""

from math import inf

from harness import Stop
from offbeat.engines.real.contact import SILENT, ServerLostError

ELASTIC = ("easgd", "ea-msgd")
"""Whose workers make steps of their own: those after the last exchange with a lost server are made again."""


def check_books(case, rows, draws):
    """Every mini-batch that was drawn has its row, and only one."""
    drawn = {(i, k) for i in range(case.workers) for k in range(int(draws[i]))}
    own = [(r.source, r.draw) for r in rows if r.outcome != "received" and r.draw is not None]
    assert set(own) == drawn, (sorted(set(own) - drawn), sorted(drawn - set(own)))
    if case.options.get("filling") != "immediate":  # which uses its first gradients twice
        assert len(own) == len(set(own))


def drawn_by(engine):
    return engine.processes.board.draws


class Strikes(Stop):
    """After so many updates, the server is taken for lost."""

    def __init__(self, updates):
        super().__init__(updates=updates)
        self.at = None

    def mark(self):
        if self.at is None:
            self.at, self.limit = self.engine.updates, inf
            self._next()
            raise ServerLostError(SILENT)
        return super().mark()
