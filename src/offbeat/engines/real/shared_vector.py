"""The shared vector of Hogwild! and EA-wild, as a worker uses it."""

from offbeat.core.effects import Lock, SharedAdd, SharedRead, Unlock, View
from offbeat.core.sparse import RowSparse
from offbeat.engines.real.locks import ByteLock
from offbeat.engines.real.site import Site
from offbeat.engines.real.vectors_for_all import PROBES, VectorsForAll


class SharedVector:
    """One vector, read and added to by everybody at once. No lock is on this path, and additions can be lost."""

    def __init__(self, site: Site, vectors: VectorsForAll, rank: int) -> None:
        self._vectors, self._rank, self._board = vectors, rank, site.board
        self._clock, self._row_sparse = site.clock, site.row_sparse
        self._lock = ByteLock(vectors.fd, vectors.extent.workers)

    def read(self, effect: SharedRead) -> View:
        begun = self._clock.now()
        version = int(self._vectors.adds.sum())
        # Of a row-sparse task only the rows of its batch are read, from the live vector when the gradient is computed.
        x = self._vectors.shared if self._row_sparse else self._vectors.shared.clone()
        view = View(x, version)
        self._board.communicating[self._rank] += self._clock.now() - begun
        return view

    def add(self, effect: SharedAdd) -> int:
        vectors, i = self._vectors, self._rank
        begun = self._clock.now()
        if isinstance(effect.delta, RowSparse):
            effect.delta.add_into(vectors.shared)
            probe = effect.delta.at(range(vectors.extent.vector)[vectors.probed][:PROBES]).double().numpy()
        else:
            vectors.shared.add_(effect.delta)
            probe = effect.delta[vectors.probed][:PROBES].double().numpy()
        vectors.probes[i, 0, : len(probe)] += probe
        vectors.probes[i, 1, : len(probe)] += abs(probe)
        version = int(vectors.adds.sum())
        vectors.adds[i] += 1
        self._board.communicating[i] += self._clock.now() - begun
        return version

    def lock(self, effect: Lock) -> None:
        self._lock.__enter__()

    def unlock(self, effect: Unlock) -> None:
        self._lock.__exit__()
