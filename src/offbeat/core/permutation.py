"""A random permutation of range(n) that can be read anywhere without being stored.

A thousand simulated workers that each shuffle 60,000 samples would keep a thousand arrays of 60,000 numbers. A
Feistel network over Z_a x Z_b (a b >= n, as tight as can be) is a keyed bijection; walking its cycle until the value
is below n (Black and Rogaway, 2002, "Ciphers with arbitrary finite domains") makes it a permutation of range(n).
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from offbeat.core.seeds import generator

_ROUNDS = 8


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Permutation:
    """sigma: range(n) -> range(n), a bijection chosen by (seed, stream, source, epoch)."""

    __slots__ = ("_a", "_b", "_keys", "n")

    def __init__(self, n: int, *, seed: int, stream: str, source: int, epoch: int) -> None:
        self.n = n
        self._a = np.uint64(max(1, isqrt(n - 1) + 1))
        self._b = np.uint64(-(-n // int(self._a)))
        self._keys = generator(seed, stream, source, epoch).integers(0, 2**64, size=_ROUNDS, dtype=np.uint64)

    def __call__(self, i: NDArray[np.int64]) -> NDArray[np.int64]:
        """sigma(i), elementwise."""
        out = self._encrypt(i.astype(np.uint64))
        outside = np.flatnonzero(out >= self.n)
        while outside.size:
            out[outside] = self._encrypt(out[outside])
            outside = outside[out[outside] >= self.n]
        return out.astype(np.int64)

    def _encrypt(self, i: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = i // self._b, i % self._b
        for r in range(0, _ROUNDS, 2):
            left = (left + _mix(right + self._keys[r]) % self._a) % self._a
            right = (right + _mix(left + self._keys[r + 1]) % self._b) % self._b
        return left * self._b + right
