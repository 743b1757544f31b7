"""Counter-based randomness: any draw is a function of (seed, stream, source, block), never of what was drawn before.

A *stream* names what the numbers are for ("data", "time", "model", ...), so that a change of schedule never changes
which samples a worker's k-th batch holds. Numbers come in blocks, because making a generator costs as much as
thousands of draws.
"""

from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 64

Sample = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""n numbers of some distribution."""


@lru_cache(maxsize=1024)
def _key(seed: int, stream: str) -> NDArray[np.uint64]:
    return np.frombuffer(blake2b(f"{seed}/{stream}".encode(), digest_size=16).digest(), dtype=np.uint64)


def generator(seed: int, stream: str, source: int, block: int = 0) -> np.random.Generator:
    """The generator of one block. Blocks cannot overlap: each starts its own 2^64 range of Philox's counter."""
    return np.random.Generator(np.random.Philox(key=_key(seed, stream), counter=[0, block, source, 0]))


def key64(seed: int, stream: str, source: int, draw: int) -> int:
    """A 63-bit seed for one draw, for generators that are not numpy's (torch's, for dropout)."""
    digest = blake2b(f"{seed}/{stream}/{source}/{draw}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Dial:
    """One Philox, set to the block that is wanted: a tenth of the cost of making a new one. Not for several threads."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(0)
        self._rng = np.random.Generator(self._bits)
        self._counter = np.zeros(4, dtype=np.uint64)
        self._state: Any = {**self._bits.state, "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}

    def at(self, seed: int, stream: str, source: int, block: int) -> np.random.Generator:
        """What `generator` gives, until the next call."""
        self._counter[1], self._counter[2] = block, source
        self._state["state"] = {"counter": self._counter, "key": _key(seed, stream)}
        self._bits.state = self._state
        return self._rng


class Draws:
    """The endless sequence of floats of one (stream, source), drawn in blocks, readable from any position.

    `next()` gives the next one. Who draws from many sources in one thread hands them one `dial`.
    """

    __slots__ = ("_block", "_dial", "_made", "_sample", "_seed", "_source", "_stream", "next")

    def __init__(
        self, sample: Sample, *, seed: int, stream: str, source: int, position: int = 0, dial: Dial | None = None
    ) -> None:
        self._sample, self._seed, self._stream, self._source = sample, seed, stream, source
        self._dial = dial or Dial()
        self.position = position

    @property
    def position(self) -> int:
        """How many were drawn."""
        _, _, *drawn = self._block.__reduce__()  # an iterator over an array knows how far it has come, until its end
        return self._made + (drawn[0] if drawn else BLOCK)

    @position.setter
    def position(self, position: int) -> None:
        self._made = position - BLOCK  # as if the block before had just been used up
        self._block: Any = iter(array("d"))
        next(self._block, None)
        self.next: Callable[[], float] = chain.from_iterable(self._blocks(position)).__next__

    def _blocks(self, position: int) -> Iterator[Iterator[float]]:
        first, skip = divmod(position, BLOCK)
        for block in count(first):
            self._block = iter(array("d", self.block(block).tobytes()))  # compact: thousands of workers have one each
            self._block.__setstate__(skip)
            self._made, skip = block * BLOCK, 0
            yield self._block

    def block(self, block: int) -> NDArray[np.float64]:
        """The numbers of one block."""
        return self._values(self._dial.at(self._seed, self._stream, self._source, block), block)

    def _values(self, rng: np.random.Generator, block: int) -> NDArray[np.float64]:
        return self._sample(rng, BLOCK)


Placed = Callable[[np.random.Generator, int, int], NDArray[np.float64]]
"""From the first, so many numbers, where a number depends on its place too."""


class PlacedDraws(Draws):
    """The same, of numbers that depend on their place: what is played from a record, or grows on the way."""

    __slots__ = ("_placed",)

    def __init__(self, placed: Placed, **where: Any) -> None:
        self._placed = placed
        super().__init__(lambda rng, n: np.empty(0), **where)

    def _values(self, rng: np.random.Generator, block: int) -> NDArray[np.float64]:
        return self._placed(rng, block * BLOCK, BLOCK)
