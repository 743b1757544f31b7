"""Which words are kept, and which serve as negatives: two distributions over the vocabulary, made once.

Mikolov et al., "Distributed representations of words and phrases and their compositionality", NIPS 2013:

    P(keep w) = min(1, sqrt(t / f_w) + t / f_w)        f_w: share of the words of the text that are w
    P_n(w) = c_w^0.75 / sum_v c_v^0.75                 c_w: how often w comes

(The first is the form of the authors' program and of gensim; the paper prints 1 - sqrt(t / f_w) for dropping.)
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
_ONE = 2.0**32


class Alias(NamedTuple):
    """Walker's alias method: draw a cell k and a 32-bit u; the word is k if u < cut[k], else other[k]."""

    cut: NDArray[np.uint32]
    other: NDArray[np.int32]


def keep_thresholds(counts: Counts, sample: float) -> NDArray[np.uint32]:
    """A word is kept if a random 32-bit number is at most its threshold. `sample` = 0 keeps all."""
    if sample == 0:
        return np.full(len(counts), 2**32 - 1, dtype=np.uint32)
    ratio = sample * counts.sum() / counts
    keep = np.minimum(1.0, np.sqrt(ratio) + ratio)
    found: NDArray[np.uint32] = np.minimum(keep * _ONE, _ONE - 1).astype(np.uint32)
    return found


def negative_table(counts: Counts, power: float = 0.75) -> Alias:
    """P_n as an alias table: one draw costs two look-ups, whatever the vocabulary (Vose's construction)."""
    p = counts.astype(np.float64) ** power
    scaled = p * (len(p) / p.sum())
    cut = np.full(len(p), _ONE - 1)
    other = np.arange(len(p), dtype=np.int32)
    small = [int(k) for k in np.flatnonzero(scaled < 1)]
    large = [int(k) for k in np.flatnonzero(scaled >= 1)]
    while small and large:
        s, g = small.pop(), large[-1]
        cut[s], other[s] = scaled[s] * _ONE, g
        scaled[g] -= 1.0 - scaled[s]
        if scaled[g] < 1:
            small.append(large.pop())
    return Alias(np.clip(cut, 0, _ONE - 1).astype(np.uint32), other)
