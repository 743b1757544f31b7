"""Which samples a worker's next mini-batch holds: a function of (seed, source, draw), never of timing."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.core.permutation import Permutation
from offbeat.core.seeds import generator
from offbeat.core.shares import NOBODY, Shares

Indices = NDArray[np.int64]
_BLOCK = 2048  # indices made at a time


class Feed:
    """Deals mini-batches to workers.

    Each worker has a *source*: its shard, or (shared data) the whole set in an order of its own. A source is an endless
    sequence of shuffled passes; draw k holds positions [k B, (k+1) B) of it, so that every sample comes exactly once a
    pass. With `interleaved=True` all workers share one source and worker i's k-th batch is draw k W + i: what W workers
    compute together, one worker can compute alone.

    `first_batch` and `growth` are for a batch that grows: from `first_batch` linearly to `batch` while everybody's
    samples go from 0 to `growth` (wongpanich2020, Figure 3). A source takes its own samples times the number of
    sources for everybody's, so that a batch is still a function of (source, draw).
    """

    def __init__(
        self,
        size: int | None,
        *,
        batch: int,
        workers: int,
        seed: int,
        shards: Sequence[Indices] | None = None,
        interleaved: bool = False,
        sampling: Literal["shuffled", "replacement"] = "shuffled",
        first_batch: int | None = None,
        growth: float = 0.0,
    ) -> None:
        smallest = min((len(s) for s in shards), default=0) if shards is not None else size
        if smallest is not None and smallest < batch:
            part = "the training set" if shards is None else "the smallest shard of the training set"
            raise ConfigError(f"batch is {batch}, but {part} has only {smallest} samples: use a smaller batch")
        self.size, self.batch, self._workers, self._seed = size, batch, workers, seed
        self._shards, self._interleaved, self._sampling = shards, interleaved, sampling
        self.draws = [0] * workers  # how many batches each worker has taken
        self.shares = Shares()
        """Whose batches each worker takes; its own, as long as nobody says otherwise."""
        self._blocks: dict[int, tuple[int, Indices]] = {}
        share = growth if interleaved else growth / workers
        self._small = growing(first_batch or batch, batch, share)
        """(start, length) of a source's first draws, while the batch grows."""

    def take(self, worker: int) -> tuple[int, int]:
        """The worker's next (source, draw)."""
        k = self.draws[worker]
        self.draws[worker] = k + 1
        if self.shares.held:
            return self.nth(worker, k)
        # `nth`, written out: a simulation without gradients does little else
        return (0, k * self._workers + worker) if self._interleaved else (worker, k)

    @property
    def own(self) -> bool:
        """Whether a worker's k-th batch is draw k of its own, and no other's."""
        return not self.shares.held and not self._interleaved

    def nth(self, worker: int, k: int) -> tuple[int, int]:
        """The worker's k-th (source, draw)."""
        if self.shares.held:
            worker, k = self.shares.nth(worker, k)
            if worker == NOBODY:
                return NOBODY, k
        return (0, k * self._workers + worker) if self._interleaved else (worker, k)

    def sizes(self, worker: int, first: int, n: int) -> NDArray[np.int64] | int:
        """Samples of the worker's batches, from the first, so many; a number where all are equal."""
        if not self._small:
            return self.batch
        draws = (self.nth(worker, k)[1] for k in range(first, first + n))
        return np.array([self._small[d][1] if d < len(self._small) else self.batch for d in draws])

    @property
    def divided(self) -> bool:
        """Whether data would be left out with a worker that is not there: each has a part of its own."""
        return self._shards is not None or self._interleaved

    def indices(self, source: int, draw: int) -> Indices | None:
        """The samples of a draw; None where the task has no dataset."""
        if self.size is None:
            return None
        if draw < len(self._small):
            return self._positions(source, *self._small[draw])
        start = sum(self._small[-1]) if self._small else 0
        draw -= len(self._small)
        per_block = max(1, _BLOCK // self.batch)
        block, offset = divmod(draw, per_block)
        number, values = self._blocks.get(source, (-1, None))
        if values is None or number != block:
            values = self._positions(source, start + block * per_block * self.batch, per_block * self.batch)
            self._blocks[source] = (block, values)
        return values[offset * self.batch : (offset + 1) * self.batch]

    def _positions(self, source: int, start: int, count: int) -> Indices:
        """Samples at positions [start, start + count) of a source's endless sequence."""
        assert self.size is not None
        shard = self._shards[source] if self._shards is not None else None
        n = self.size if shard is None else len(shard)
        if self._sampling == "replacement":
            found = generator(self._seed, "data", source, start).integers(0, n, size=count)
        else:
            found = np.empty(count, dtype=np.int64)
            at = np.arange(start, start + count)
            for epoch in range(start // n, (start + count - 1) // n + 1):
                here = at // n == epoch
                sigma = Permutation(n, seed=self._seed, stream="data", source=source, epoch=epoch)
                found[here] = sigma(at[here] % n)
        return found if shard is None else shard[found]


def growing(first: int, batch: int, samples: float) -> list[tuple[int, int]]:
    """(start, length) of the draws before the batch has its full length: first + (batch - first) p / samples at p."""
    draws, p = [], 0
    while first < batch and p < samples:
        length = min(batch, round(first + (batch - first) * p / samples))
        draws.append((p, length))
        p += length
    return draws
