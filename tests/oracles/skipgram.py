"""Skip-gram with negative sampling, slowly: pair by pair, in plain Python and float64, from the formulas.

loss = - sum over pairs (c, o) of [ log sigma(u_c . v_o) + sum_k log sigma(- u_c . v_k) ]
"""

import math

import numpy as np

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix(z):
    """The output function of splitmix64 (Steele, Lea, Flood 2014)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Stream:
    """Numbers n = 1, 2, ... of a key."""

    def __init__(self, start):
        self.state = start

    def next(self):
        self.state = (self.state + GOLDEN) & MASK
        return splitmix(self.state)


def sentences(text):
    """[(word, sentence number)] of an encoded text: a complement ends its sentence."""
    out, number = [], 0
    for w in text:
        out.append((w if w >= 0 else -w - 1, number))
        number += w < 0
    return out


def kept(random, word, keep):
    return (random >> 32) <= keep[word]


def negative(random, cut, other):
    k = ((random >> 32) * len(cut)) >> 32
    return k if (random & 0xFFFFFFFF) < cut[k] else other[k]


def windows_at(text, positions, key, keep, cut, other, radius, K):
    """[(centre, contexts, stream for the negatives)] around positions; dropped words leave no gap."""
    words = sentences(text)
    found = []
    for i, p in enumerate(positions):
        stream = Stream(splitmix((key + i * GOLDEN) & MASK))
        centre, here = words[p]
        if not kept(stream.next(), centre, keep):
            continue
        reach = 1 + (((stream.next() >> 32) * radius) >> 32)
        contexts = []
        for side in (range(p - 1, -1, -1), range(p + 1, len(words))):
            near = []
            for j in side:
                if len(near) == reach or words[j][1] != here:
                    break
                if kept(stream.next(), words[j][0], keep):
                    near.append(words[j][0])
            contexts += near
        if contexts:
            found.append((centre, contexts, stream))
    return found


def windows_along(text, start, stop, key, keep, cut, other, radius, K):
    """The same for a stretch of text: every word is kept or dropped once, before windows are laid."""
    stream = Stream(splitmix(key))
    left = [(w, s) for w, s in sentences(text[start:stop]) if kept(stream.next(), w, keep)]
    for i, (centre, here) in enumerate(left):
        reach = 1 + (((stream.next() >> 32) * radius) >> 32)
        near = [j for j in range(max(0, i - reach), min(len(left), i + reach + 1)) if j != i and left[j][1] == here]
        contexts = [left[j][0] for j in near]
        yield centre, contexts, stream


def with_negatives(windows, cut, other, K, pairs):
    """(centre, contexts, negatives): one set of negatives a window, or one a pair, which is a window of its own."""
    for centre, contexts, stream in windows:
        for some in [[c] for c in contexts] if pairs else [contexts][: len(contexts)]:
            yield centre, some, [negative(stream.next(), cut, other) for _ in range(K)]


def sigma(x):
    return 1.0 / (1.0 + math.exp(-x))


def loss_and_gradient(u, v, windows):
    """Both summed over the pairs, at a fixed point; a negative that is the centre counts for nothing."""
    du, dv, loss, pairs = np.zeros_like(u), np.zeros_like(v), 0.0, 0
    for centre, contexts, negatives in windows:
        for c in contexts:
            pairs += 1
            for o, y in [(centre, 1.0), *((n, 0.0) for n in negatives if n != centre)]:
                f = float(u[c] @ v[o])
                loss -= math.log(sigma(f) if y else sigma(-f))
                du[c] += (sigma(f) - y) * v[o]
                dv[o] += (sigma(f) - y) * u[c]
    return loss, pairs, du, dv


def train(u, v, windows, rate):
    """One step of the gradient a window, in order."""
    for window in windows:
        _, _, du, dv = loss_and_gradient(u, v, [window])
        u -= rate * du
        v -= rate * dv
    return u, v
