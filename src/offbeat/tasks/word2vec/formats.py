"""Embeddings in the two formats of the word2vec program, which gensim and others open.

text    `V D`, then a line a word: the word and its D numbers
binary  `V D` and a line end, then for each word: the word, a blank, D little-endian float32 (and perhaps a line end)
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import DataError

Matrix = NDArray[np.float32]


class Embeddings(NamedTuple):
    """A row of `vectors` a word."""

    words: tuple[str, ...]
    vectors: Matrix


def save(path: Path, words: Sequence[str], vectors: Matrix, *, binary: bool) -> None:
    """Writes beside its place and renames, so that nobody sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
            for word, row in zip(words, np.asarray(vectors, dtype="<f4"), strict=True):
                if binary:
                    file.write(word.encode() + b" " + row.tobytes() + b"\n")
                else:
                    file.write((word + " " + " ".join(map(repr, row.tolist())) + "\n").encode())
        os.replace(beside, path)
    except OSError as e:
        raise DataError(f"cannot write {path}: {e.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)


def load(path: Path) -> Embeddings:
    """Reads either format; which one it is, the first word's line tells."""
    try:
        with open(path, "rb") as file:
            count, dim = _header(file, path)
            at = file.tell()
            line = file.readline(64 * (dim + 1) + 1000)
            file.seek(at)
            return _read_text(file, path, count, dim) if _is_text(line, dim) else _read_binary(file, path, count, dim)
    except OSError as e:
        raise DataError(f"cannot read {path}: {e.strerror}") from None


def _header(file: BinaryIO, path: Path) -> tuple[int, int]:
    parts = file.readline(100).split()
    if len(parts) != 2 or not all(p.isdigit() for p in parts) or int(parts[1]) == 0:
        raise DataError(f"{path} holds no word2vec embeddings: its first line must be two numbers, words and dimension")
    return int(parts[0]), int(parts[1])


def _is_text(line: bytes, dim: int) -> bool:
    try:
        return len([float(v) for v in line.decode().split(" ")[1:]]) == dim
    except ValueError:
        return False


def _read_text(file: BinaryIO, path: Path, count: int, dim: int) -> Embeddings:
    words, vectors = [], np.empty((count, dim), dtype=np.float32)
    for k in range(count):
        word, *values = file.readline().decode().rstrip("\n").split(" ")
        try:
            vectors[k] = [float(v) for v in values]
        except ValueError:
            raise DataError(f"{path} is damaged: line {k + 2} must hold a word and {dim} numbers") from None
        words.append(word)
    return Embeddings(tuple(words), vectors)


def _read_binary(file: BinaryIO, path: Path, count: int, dim: int) -> Embeddings:
    data = file.read()
    words, vectors, at = [], np.empty((count, dim), dtype=np.float32), 0
    for k in range(count):
        blank = data.find(b" ", at)
        end = blank + 1 + 4 * dim
        if blank < 0 or end > len(data):
            raise DataError(f"{path} is cut short: it announces {count:,} words and holds {k:,}")
        words.append(data[at:blank].lstrip(b"\n").decode("utf-8", errors="replace"))
        vectors[k] = np.frombuffer(data, dtype="<f4", count=dim, offset=blank + 1)
        at = end
    return Embeddings(tuple(words), vectors)
