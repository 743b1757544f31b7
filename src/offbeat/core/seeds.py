"""Counter-based randomness: any draw is a function of (seed, stream, source, block), never of what was drawn before.

A *stream* names what the numbers are for ("data", "time", "model", ...), so that a change of schedule never changes
which samples a worker's k-th batch holds. Numbers come in blocks, because making a generator costs as much as
thousands of draws.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 256

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

    Who draws from many sources in one thread hands them one `dial`.
    """

    __slots__ = ("_dial", "_offset", "_sample", "_seed", "_source", "_start", "_stream", "_values")

    def __init__(
        self, sample: Sample, *, seed: int, stream: str, source: int, position: int = 0, dial: Dial | None = None
    ) -> None:
        self._sample, self._seed, self._stream, self._source = sample, seed, stream, source
        self._dial = dial or Dial()
        self.position = position

    def next(self) -> float:
        try:
            value: float = self._values[self._offset]
        except IndexError:
            self._fill()
            value = self._values[self._offset]
        self._offset += 1
        return value

    @property
    def position(self) -> int:
        """How many were drawn."""
        return self._start + self._offset

    @position.setter
    def position(self, position: int) -> None:
        self._offset = position % BLOCK
        self._start = position - self._offset
        self._values: memoryview | tuple[()] = ()

    def _fill(self) -> None:
        block, self._offset = divmod(self.position, BLOCK)
        self._start = block * BLOCK
        values = self._sample(self._dial.at(self._seed, self._stream, self._source, block), BLOCK)
        self._values = values.data  # a list of floats would be four times as large, and slower in thousands
