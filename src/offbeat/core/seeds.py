"""Counter-based randomness: any draw is a function of (seed, stream, source, block), never of what was drawn before.

A *stream* names what the numbers are for ("data", "time", "model", ...), so that a change of schedule never changes
which samples a worker's k-th batch holds. Numbers come in blocks, because making a generator costs as much as
thousands of draws.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

BLOCK = 256


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


class Draws:
    """The endless sequence of floats of one (stream, source), drawn in blocks, readable from any position."""

    __slots__ = ("_block", "_sample", "_seed", "_source", "_stream", "_values", "position")

    def __init__(
        self,
        sample: Callable[[np.random.Generator, int], NDArray[np.float64]],
        *,
        seed: int,
        stream: str,
        source: int,
        position: int = 0,
    ) -> None:
        self._sample, self._seed, self._stream, self._source = sample, seed, stream, source
        self.position = position
        self._block = -1
        self._values: list[float] = []

    def next(self) -> float:
        block, offset = divmod(self.position, BLOCK)
        if block != self._block:
            rng = generator(self._seed, self._stream, self._source, block)
            self._values = self._sample(rng, BLOCK).tolist()
            self._block = block
        self.position += 1
        return self._values[offset]
