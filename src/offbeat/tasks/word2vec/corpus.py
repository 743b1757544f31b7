"""A text as numbers: its vocabulary, and its words as two arrays on disk, for training and held out.

The text is cut into blocks of `block` words, and the held-out share is taken evenly over it (with 0.15: every 6th or
7th block), so that both parts speak of the same things. The vocabulary is that of the training part. Arrays are
memory-mapped int32, one entry a word; the last word of a sentence or block is stored as its complement ~w, so that a
window knows where to end and no entry is anything but a word.
"""

import hashlib
import json
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from offbeat.core.errors import ConfigError, DataError, OffbeatWarning
from offbeat.data.rawfiles import TEMPORARY, sweep
from offbeat.tasks.word2vec.encoded import (
    HELD_OUT,
    TRAIN,
    VOCABULARY,
    Corpus,
    Damaged,
    Ids,
    put_in_place,
    read_corpus,
    write_note,
)
from offbeat.tasks.word2vec.text import LINE_END, Errors, digest, tokens

FORMAT = 2
BLOCK = 1000


def load(
    path: Path,
    cache: Path,
    *,
    min_count: int = 5,
    max_words: int | None = None,
    held_out: float = 0.15,
    errors: Errors = "strict",
    limit: int | None = None,
    block: int = BLOCK,
) -> Corpus:
    """The encoded form of a text, from the cache if it is there; two passes over the text if not."""
    if not 0 <= held_out < 1:
        raise ConfigError(f"task.held_out must be a share from 0 to below 1, got {held_out}")
    if min_count < 1 or (max_words is not None and max_words < 1) or (limit is not None and limit < 1) or block < 1:
        raise ConfigError("task.min_count, task.max_words, task.limit and task.block must be 1 or more")
    sha256 = digest(path)
    choices = {"text": sha256, "min_count": min_count, "max_words": max_words, "held_out": held_out}
    choices = {**choices, "errors": errors, "limit": limit, "block": block, "format": FORMAT}
    name = digest_of(choices)
    folder = cache / "word2vec" / name
    try:
        return read_corpus(folder, sha256)
    except Damaged as e:
        if folder.exists():
            warnings.warn(f"{e}: it is made anew", OffbeatWarning, stacklevel=2)
    counts = count(_blocks(path, errors, limit, block), held_out)
    words = vocabulary(counts, min_count, max_words, path)
    _encode(folder, words, counts, _blocks(path, errors, limit, block), held_out, choices)
    try:
        return read_corpus(folder, sha256)
    except Damaged as e:
        raise DataError(f"{e}, though it was just made: remove it, or set OFFBEAT_DATA to another place") from None


def is_held_out(number: int, share: float) -> bool:
    """Whether block `number` is held out: floor(n share) of the first n blocks are, for every n."""
    return int((number + 1) * share) > int(number * share)


def count(blocks: Iterator[list[str]], held_out: float) -> Counter[str]:
    """How often each word comes in the blocks for training."""
    found: Counter[str] = Counter()
    for number, words in enumerate(blocks):
        if not is_held_out(number, held_out):
            found.update(words)
    del found[LINE_END]
    return found


def vocabulary(counts: Counter[str], min_count: int, max_words: int | None, path: Path) -> list[str]:
    """Words that come often enough, the most frequent first."""
    if not counts:
        raise DataError(f"{path} holds no words")
    words = sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))[:max_words]
    if len(words) < 2:
        most, times = counts.most_common(1)[0]
        most = most if len(most) <= 40 else f"{most[:40]}..."  # a file without spaces is one giant word
        raise DataError(
            f"{path}: {len(words) or 'none'} of its {len(counts):,} words comes {min_count} times or more "
            f"(the most frequent, {most!r}, {times} times): lower task.min_count"
        )
    return words


def _blocks(path: Path, errors: Errors, limit: int | None, block: int) -> Iterator[list[str]]:
    """The text in blocks of so many words and line ends."""
    held: list[str] = []
    for part in tokens(path, errors, limit=limit):
        held += part
        full = len(held) - len(held) % block
        for start in range(0, full, block):
            yield held[start : start + block]
        held = held[full:]
    if held:
        yield held


def encode_block(words: list[str], index: dict[str, int]) -> Ids:
    """Numbers of the known words; the last of each sentence and of the block as its complement."""
    ids: Ids = np.fromiter(map(index.get, words, repeat(-2)), dtype=np.int32, count=len(words))
    ids = ids[ids != -2]  # unknown words leave no gap
    ends = np.flatnonzero(ids == -1)
    before = ends[ends > 0] - 1
    before = before[ids[before] >= 0]
    ids[before] = ~ids[before] - 1  # -2 and less, so that it is no line end
    ids = ids[ids != -1]
    last = ids < 0
    ids[last] += 1
    if len(ids) and ids[-1] >= 0:
        ids[-1] = ~ids[-1]
    return ids


def _encode(
    folder: Path,
    words: list[str],
    counts: Counter[str],
    blocks: Iterator[list[str]],
    held_out: float,
    choices: dict[str, Any],
) -> None:
    """Writes the folder beside its place and renames it: half a corpus is never seen."""
    beside = folder.with_name(f"{TEMPORARY}{token_hex(8)}")
    index = {LINE_END: -1, **{w: i for i, w in enumerate(words)}}
    try:
        beside.mkdir(parents=True)
        sweep(folder.parent)
        with open(beside / TRAIN, "wb") as train, open(beside / HELD_OUT, "wb") as rest:
            for number, block in enumerate(blocks):
                held = is_held_out(number, held_out)
                (rest if held else train).write(encode_block(block, index).tobytes())
        lines = "".join(f"{w} {counts[w]}\n" for w in words)
        (beside / VOCABULARY).write_text(lines, encoding="utf-8")
        write_note(beside, choices)
        put_in_place(beside, folder)
    except OSError as e:
        raise DataError(f"cannot write the encoded text to {folder}: {e.strerror}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def digest_of(choices: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(choices, sort_keys=True).encode()).hexdigest()[:16]
