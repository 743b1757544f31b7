"""How good embeddings are: judgements of similarity, analogies, neighbours. All by cosine."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError, nearest
from offbeat.data.datasets import cache_dir, dataset

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class JudgedPairs:
    """Pairs of words that people have judged; only those with both words known count."""

    rows: NDArray[np.int64]
    """The distinct words of the pairs, as rows of the embeddings."""
    one: NDArray[np.int64]
    other: NDArray[np.int64]
    judged: NDArray[np.float64]
    total: int

    @classmethod
    def find(cls, name: str, index: dict[str, int]) -> "JudgedPairs | None":
        """A set of pairs from the cache; None if it is not there, or knows too few of our words."""
        path = data_file(name)
        return cls.read(path, index) if path.is_file() else None

    @classmethod
    def read(cls, path: Path, index: dict[str, int]) -> "JudgedPairs | None":
        """Lines of `word <tab> word <tab> judgement`; others (comments, a heading) are passed over."""
        pairs: list[tuple[int, int]] = []
        judged, total = [], 0
        for line in path.read_text(encoding="utf-8").splitlines():
            parts = line.split("\t")
            try:
                one, other, value = parts[0].lower(), parts[1].lower(), float(parts[2])
            except (IndexError, ValueError):
                continue
            total += 1
            if one in index and other in index:
                pairs.append((index[one], index[other]))
                judged.append(value)
        if len(pairs) < 3:
            return None
        rows, where = np.unique(np.array(pairs, dtype=np.int64).ravel(), return_inverse=True)
        return cls(rows, where[0::2], where[1::2], np.array(judged), total)

    def correlation(self, vectors: Matrix) -> float:
        """Spearman's rank correlation of cosine and judgement; `vectors` are those of `rows`."""
        from scipy.stats import spearmanr

        unit = normalised(vectors)
        cosine = (unit[self.one] * unit[self.other]).sum(axis=1)
        return float(spearmanr(cosine, self.judged).statistic)


def normalised(vectors: Matrix) -> Matrix:
    """Rows of length 1; a row of zeros stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Matrix = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return unit


def neighbours(word: str, words: tuple[str, ...], vectors: Matrix, count: int = 10) -> list[tuple[str, float]]:
    """The words nearest to one, with their cosines."""
    index = {w: i for i, w in enumerate(words)}
    if word not in index:
        raise ConfigError(f"{word!r} is not among the {len(words):,} words of this vocabulary{nearest(word, words)}")
    unit = normalised(vectors)
    cosine = unit @ unit[index[word]]
    order = np.argsort(-cosine, kind="stable")
    return [(words[i], float(cosine[i])) for i in order if i != index[word]][:count]


def analogies(path: Path, words: tuple[str, ...], vectors: Matrix, among: int = 30_000) -> dict[str, tuple[int, int]]:
    """(right, asked) of each section of `a b c d` lines: is d the nearest to b - a + c, a, b and c apart?

    Only questions whose words are all among the most frequent `among` are asked, as is the custom.
    """
    index = {w: i for i, w in enumerate(words[:among])}
    unit = normalised(vectors[:among])
    found: dict[str, tuple[int, int]] = {}
    section, questions = "", [[0, 0, 0, 0]][:0]
    for line in [*path.read_text(encoding="utf-8").lower().splitlines(), ":"]:
        if line.startswith(":"):
            if questions:
                found[section] = (_right(np.array(questions), unit), len(questions))
            section, questions = line[1:].strip(), []
            continue
        known = [index[w] for w in line.split() if w in index]
        if len(known) == 4:
            questions.append(known)
    return found


def _right(questions: NDArray[np.int64], unit: Matrix, at_a_time: int = 500) -> int:
    right = 0
    for start in range(0, len(questions), at_a_time):
        a, b, c, d = questions[start : start + at_a_time].T
        scores = normalised(unit[b] - unit[a] + unit[c]) @ unit.T
        for given in (a, b, c):
            scores[np.arange(len(given)), given] = -np.inf
        right += int((scores.argmax(axis=1) == d).sum())
    return right


def data_file(name: str) -> Path:
    """Where a judged set is, if it is there."""
    return cache_dir() / name / dataset(name).files[0].name
