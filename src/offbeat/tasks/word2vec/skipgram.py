"""Word2vec as a task: skip-gram with negative sampling on a text (Mikolov et al., NIPS 2013).

A sample is a word of the text: the window around it, if it is kept. Parameters are two matrices of V rows, `inputs`
(the embeddings) and `outputs`, one under the other; a gradient has the rows of its batch only.
"""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from offbeat.core.effects import Gradient
from offbeat.core.errors import ConfigError, DataError, unknown
from offbeat.core.feed import Indices
from offbeat.core.layout import Layout
from offbeat.core.seeds import generator, key64
from offbeat.core.sparse import RowSparse, RowTable, rows_of
from offbeat.core.task import Mapper, Point
from offbeat.core.units import parse_size
from offbeat.data.arrays import text_file
from offbeat.data.datasets import DATASETS, cache_dir
from offbeat.tasks.word2vec.corpus import BLOCK, load
from offbeat.tasks.word2vec.kernel import kernel
from offbeat.tasks.word2vec.quality import JudgedPairs
from offbeat.tasks.word2vec.sampling import keep_thresholds, negative_table
from offbeat.tasks.word2vec.text import Errors
from offbeat.tasks.word2vec.windows import draw_along, draw_at

Manner = Literal["shared", "pairs"]
_HELD_OUT_SAMPLE = 20_000  # words of the held-out part that an evaluation looks at, the same ones every time
_REDRAWS = 100
_STRETCH = 1000  # words that a pass takes at a time: what it holds of them stays in the cache


class Windows(NamedTuple):
    """Window i: centres[i] is predicted from contexts[starts[i] : starts[i + 1]] against negatives[i]."""

    centres: NDArray[np.int32]
    starts: NDArray[np.int64]
    contexts: NDArray[np.int32]
    negatives: NDArray[np.int32]


class Word2Vec:
    """The loss is the mean over the pairs of a batch; its gradient is summed over them.

    The sum is word2vec's own convention: a pair moves its rows by the learning rate whatever batch it is in, so that
    one learning rate serves every batch size and every engine. `manner="shared"` lets the pairs of a window share
    their negatives (HogBatch), `"pairs"` draws them for each pair (classical).
    """

    name = "word2vec"
    unit = "words"
    row_sparse = True

    def __init__(
        self,
        data: str = "text8",
        *,
        dim: int = 100,
        window: int = 5,
        negatives: int = 5,
        sample: float = 1e-3,
        min_count: int = 5,
        max_words: int | None = None,
        held_out: float = 0.15,
        manner: Manner = "shared",
        errors: Errors = "strict",
        limit: str | int | None = None,
        block: int = BLOCK,
    ) -> None:
        for key, value in (("dim", dim), ("window", window), ("negatives", negatives)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"task.{key} must be a whole number from 1, got {value!r}")
        if not (isfinite(sample) and sample >= 0):
            raise ConfigError(f"task.sample must be a finite number from 0, got {sample!r}")
        for key, text, known in (("manner", manner, ("shared", "pairs")), ("errors", errors, ("strict", "ignore"))):
            if text not in known:
                raise unknown(f"task.{key}", str(text), known)
        size = None if limit is None else parse_size(limit, "task.limit")
        path = file_of(data)
        options: dict[str, Any] = {"min_count": min_count, "max_words": max_words, "held_out": held_out}
        self.corpus = load(path, cache_dir(), **options, errors=errors, limit=size, block=block)
        self.words, V = self.corpus.words, len(self.corpus.words)
        self.dim, self.window, self.negatives, self.manner = dim, window, negatives, manner
        self.data, self.sample = data, sample
        self.layout = Layout.of([("inputs", (V, dim)), ("outputs", (V, dim))])
        self.size = len(self.corpus.train)
        self.nbytes = 4 * self.layout.size
        self._shape = (2 * V, dim)
        self._draws = (keep_thresholds(self.corpus.counts, sample), *negative_table(self.corpus.counts))
        self._kernel = kernel(dim, negatives)
        self._evaluated = self._fixed_sample()
        self._similar = JudgedPairs.find("wordsim353", self.corpus.index())

    # -- the task -----------------------------------------------------------------------------------------------

    def init(self, seed: int) -> Point:
        """Inputs uniform in +-1/(2 dim), outputs zero, as in the authors' program."""
        V, D = len(self.words), self.dim
        inputs = (generator(seed, "init", 0).random((V, D), dtype=np.float32) - 0.5) / D
        return Point(RowTable(torch.from_numpy(np.concatenate([inputs, np.zeros_like(inputs)])), frozen=True))

    def gradient(self, point: Point, batch: Indices | None, key: int) -> Gradient:
        assert batch is not None
        for again in range(_REDRAWS):  # all words of a small batch may be dropped: it is drawn anew
            windows = self.windows_at(self.corpus.train, batch, key + again)
            if len(windows.contexts):
                break
        value, loss = self._differentiate(point.x, windows)
        pairs = max(1, len(windows.contexts))
        return Gradient(value, loss / pairs, len(batch), norm=float(value.norm()))

    def evaluate(self, point: Point, mapper: Mapper) -> dict[str, float]:
        """Loss per pair on a fixed sample of the held-out part, and the correlation with human judgement."""
        _, loss = self._differentiate(point.x, self._evaluated)
        found = {"loss": loss / max(1, len(self._evaluated.contexts))}
        if self._similar is not None:
            inputs = rows_of(point.x, torch.from_numpy(self._similar.rows), self.dim).numpy()
            found["wordsim353"] = self._similar.correlation(inputs)
        return found

    def describe(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "data": self.data,
            "sha256": self.corpus.sha256,
            "parameters": self.layout.size,
            "words": len(self.words),
            "train": self.size,
            "held_out": len(self.corpus.held_out),
            "dim": self.dim,
            "window": self.window,
            "negatives": self.negatives,
            "manner": self.manner,
            "evaluated_on": "held-out part" if len(self.corpus.held_out) else "training part",
        }

    def files(self) -> dict[str, str]:
        """What goes with the weights: row k of both matrices is that of line k."""
        counts = zip(self.words, self.corpus.counts.tolist(), strict=True)
        return {"vocabulary.txt": "".join(f"{word} {count}\n" for word, count in counts)}

    # -- inside -------------------------------------------------------------------------------------------------

    def windows_at(self, text: Any, positions: Any, key: int) -> Windows:
        options = (self.window, self.negatives, self.manner == "pairs")
        return Windows(*draw_at(text, positions, np.uint64(key), *self._draws, *options))

    def _differentiate(self, x: Any, windows: Windows) -> tuple[RowSparse, float]:
        """The gradient and the loss, summed over the pairs of the windows; only their rows are read."""
        V = len(self.words)
        inputs, contexts = np.unique(windows.contexts, return_inverse=True)
        drawn = np.concatenate([windows.centres, windows.negatives.ravel()])
        outputs, local = np.unique(drawn, return_inverse=True)
        n, first = len(windows.centres), len(inputs)
        rows = torch.from_numpy(np.concatenate([inputs.astype(np.int64), outputs.astype(np.int64) + V]))
        values = rows_of(x, rows, self.dim).numpy()
        gradient = np.zeros_like(values)
        loss, _ = self._kernel(
            values[:first],
            values[first:],
            gradient[:first],
            gradient[first:],
            local[:n].astype(np.int32),
            windows.starts,
            contexts.astype(np.int32),
            local[n:].astype(np.int32).reshape(n, self.negatives),
            -1.0,
            1,
        )
        return RowSparse(rows, torch.from_numpy(gradient), self._shape), float(loss)

    def _fixed_sample(self) -> Windows:
        text = self.corpus.held_out if len(self.corpus.held_out) else self.corpus.train
        positions = np.linspace(0, len(text) - 1, min(_HELD_OUT_SAMPLE, len(text))).astype(np.int64)
        return self.windows_at(text, positions, key64(0, "evaluate", 0, 0))

    # -- in place -----------------------------------------------------------------------------------------------

    def sweep(self, x: torch.Tensor, start: int, stop: int, rate: float, key: int) -> tuple[float, int]:
        """Trains x in place on words [start, stop) of the text, window by window; (loss, pairs) of a part of them.

        No lock is held and the interpreter's is released: threads that share x are Hogwild!'s.
        """
        V = len(self.words)
        both = x.view(self._shape).numpy()
        inputs, outputs = both[:V], both[V:]
        options = (self.window, self.negatives, self.manner == "pairs")
        loss, pairs = 0.0, 0
        for begin in range(start, stop, _STRETCH):
            end = min(begin + _STRETCH, stop)
            windows = draw_along(self.corpus.train, begin, end, np.uint64(key + begin), *self._draws, *options)
            some, count = self._kernel(inputs, outputs, inputs, outputs, *windows, rate, 64)
            loss, pairs = loss + some, pairs + count
        return loss, pairs


def file_of(data: str) -> Path:
    """The file of a named text, verified, or the user's own."""
    if data not in DATASETS:
        path = Path(data).expanduser()
        if not path.is_file():
            texts = _texts()
            raise DataError(f"no text {data!r}: give a file, or one of {', '.join(texts)}")
        return path
    if data not in _texts():
        raise DataError(f"{data} is no text: give a file, or one of {', '.join(_texts())}")
    return text_file(data)


def _texts() -> Sequence[str]:
    return [name for name, row in DATASETS.items() if row.kind == "text" and row.size > 10_000_000]
