"""The shared vector of Hogwild! and EA-wild, as a worker uses it."""

from offbeat.core.effects import Lock, SharedAdd, SharedRead, Unlock, View
from offbeat.core.sparse import RowSparse
from offbeat.engines.local.arena import PROBES, Arena
from offbeat.engines.local.locks import ByteLock
from offbeat.engines.real.site import Site


class SharedVector:
    """One vector, read and added to by everybody at once. No lock is on this path, and additions can be lost."""

    def __init__(self, site: Site, arena: Arena, rank: int) -> None:
        self._arena, self._rank, self._clock, self._row_sparse = arena, rank, site.clock, site.row_sparse
        self._lock = ByteLock(arena, arena.shape.workers)

    def read(self, effect: SharedRead) -> View:
        begun = self._clock.now()
        version = int(self._arena.adds.sum())
        # Of a row-sparse task only the rows of its batch are read, from the live vector when the gradient is computed.
        x = self._arena.shared if self._row_sparse else self._arena.shared.clone()
        view = View(x, version)
        self._arena.communicating[self._rank] += self._clock.now() - begun
        return view

    def add(self, effect: SharedAdd) -> int:
        arena, i = self._arena, self._rank
        begun = self._clock.now()
        if isinstance(effect.delta, RowSparse):
            effect.delta.add_into(arena.shared)
            probe = effect.delta.at(range(arena.shape.vector)[arena.probed][:PROBES]).double().numpy()
        else:
            arena.shared.add_(effect.delta)
            probe = effect.delta[arena.probed][:PROBES].double().numpy()
        arena.probes[i, 0, : len(probe)] += probe
        arena.probes[i, 1, : len(probe)] += abs(probe)
        version = int(arena.adds.sum())
        arena.adds[i] += 1
        arena.communicating[i] += self._clock.now() - begun
        return version

    def lock(self, effect: Lock) -> None:
        self._lock.__enter__()

    def unlock(self, effect: Unlock) -> None:
        self._lock.__exit__()


def lost_share(arena: Arena) -> float | None:
    """Of what was added to the shared vector, how much is not there: on some components, where sums were kept.

    Rounding makes it a little more than nothing where nothing was lost.
    """
    wanted = arena.probes.sum(0)
    if not wanted[1].any():
        return None
    now = arena.shared[arena.probed][:PROBES].double().numpy()
    n = len(now)
    return float(abs(arena.probe_start[:n] + wanted[0, :n] - now).sum() / wanted[1, :n].sum())
