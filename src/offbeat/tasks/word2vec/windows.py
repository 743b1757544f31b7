"""Which words meet which: windows and negatives drawn from the text, by compiled code without the interpreter lock.

A *window* is one centre word, the context words that predict it, and K negatives they share (the HogBatch manner). In
the classical per-pair manner each pair is a window of its own with its own negatives, so that one kernel serves both.

Random numbers are counter-based: number n of a key is mix(key + n GOLDEN) (splitmix64; Steele et al., OOPSLA 2014).
What a window holds is a function of its key alone, whoever draws it and in whatever order.
"""

from typing import Any

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@njit(inline="always")
def mix(z: Any) -> Any:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> _30)) * _A
    z = (z ^ (z >> _27)) * _B
    return z ^ (z >> _31)


@njit(inline="always")
def _below(random: Any, n: Any) -> Any:
    """A number below n (n < 2^32) from the high half of a random word, without a division (Lemire 2019)."""
    return np.int64(((random >> _32) * np.uint64(n)) >> _32)


@njit(inline="always")
def _negative(random: Any, cut: Any, other: Any) -> Any:
    k = _below(random, cut.shape[0])
    return np.int32(k) if np.uint32(random & _LOW) < cut[k] else other[k]


@njit(nogil=True, cache=True)
def draw_at(
    text: Any, positions: Any, key: Any, keep: Any, cut: Any, other: Any, radius: Any, K: Any, pairs: Any
) -> Any:
    """Windows around given positions of the text: what a mini-batch is.

    Words are kept or dropped by chance (`keep`), and a dropped word leaves no gap: the window reaches further. Each
    position has a key of its own. Gives (centres, starts, contexts, negatives): window i has the contexts
    starts[i] : starts[i + 1]. A position whose word is dropped, or stands alone, has no window.
    """
    n, most = positions.shape[0], 2 * radius
    room = n * most if pairs else n
    centres = np.empty(room, np.int32)
    starts = np.zeros(room + 1, np.int64)
    contexts = np.empty(n * most, np.int32)
    negatives = np.empty((room, K), np.int32)
    windows = 0
    filled = 0
    for i in range(n):
        p = positions[i]
        state = mix(key + np.uint64(i) * GOLDEN)
        word = text[p]
        centre = word if word >= 0 else ~word
        state += GOLDEN
        if np.uint32(mix(state) >> _32) > keep[centre]:
            continue
        state += GOLDEN
        reach = 1 + _below(mix(state), radius)
        first = filled
        j, found = p - 1, 0
        while found < reach and j >= 0 and text[j] >= 0:  # a complement ends the sentence before
            state += GOLDEN
            if np.uint32(mix(state) >> _32) <= keep[text[j]]:
                contexts[filled] = text[j]
                filled += 1
                found += 1
            j -= 1
        j, found = p, 0
        while found < reach and text[j] >= 0 and j + 1 < text.shape[0]:
            j += 1
            here = text[j] if text[j] >= 0 else ~text[j]
            state += GOLDEN
            if np.uint32(mix(state) >> _32) <= keep[here]:
                contexts[filled] = here
                filled += 1
                found += 1
        for w in range(first, filled if pairs else min(first + 1, filled)):
            centres[windows] = centre
            for k in range(K):
                state += GOLDEN
                negatives[windows, k] = _negative(mix(state), cut, other)
            windows += 1
            starts[windows] = w + 1 if pairs else filled
    return centres[:windows], starts[: windows + 1], contexts[:filled], negatives[:windows]


@njit(nogil=True, cache=True)
def draw_along(
    text: Any, start: Any, stop: Any, key: Any, keep: Any, cut: Any, other: Any, radius: Any, K: Any, pairs: Any
) -> Any:
    """Windows of a stretch of text, in order: what a pass over it is made of. Each word is kept or dropped once."""
    kept = np.empty(stop - start, np.int32)
    sentence = np.empty(stop - start, np.int32)  # the number of the sentence that a kept word is in
    length = 0
    number = 0
    state = mix(key)
    for p in range(start, stop):
        word = text[p] if text[p] >= 0 else ~text[p]
        state += GOLDEN
        if np.uint32(mix(state) >> _32) <= keep[word]:
            kept[length] = word
            sentence[length] = number
            length += 1
        if text[p] < 0:
            number += 1
    most = 2 * radius
    room = length * most if pairs else length
    centres = np.empty(room, np.int32)
    starts = np.zeros(room + 1, np.int64)
    contexts = np.empty(length * most, np.int32)
    negatives = np.empty((room, K), np.int32)
    windows = 0
    filled = 0
    for i in range(length):
        state += GOLDEN
        reach = 1 + _below(mix(state), radius)
        first = filled
        for j in range(max(0, i - reach), min(length, i + reach + 1)):
            if j != i and sentence[j] == sentence[i]:
                contexts[filled] = kept[j]
                filled += 1
        for w in range(first, filled if pairs else min(first + 1, filled)):
            centres[windows] = kept[i]
            for k in range(K):
                state += GOLDEN
                negatives[windows, k] = _negative(mix(state), cut, other)
            windows += 1
            starts[windows] = w + 1 if pairs else filled
    return centres[:windows], starts[: windows + 1], contexts[:filled], negatives[:windows]
