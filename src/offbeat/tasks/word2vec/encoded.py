"""An encoded text on disk: what is in its folder, and how it is read back without trusting a byte of it.

A word's number out of range would be an address out of range in the kernel, so that everything is checked on the way
in: sizes, sums, ranges. The sums are those of the three files; the folder's name is made of the text's own.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from offbeat.data.rawfiles import CHUNK_BYTES, is_regular, sync_folder

Ids = NDArray[np.int32]
TRAIN, HELD_OUT, VOCABULARY, NOTE = "train.i32", "held_out.i32", "vocabulary.txt", "corpus.json"
_LARGEST_NOTE = 10_000


@dataclass(frozen=True)
class Corpus:
    """Encoded text. Words are numbered from the most frequent; equal counts in alphabetical order."""

    words: tuple[str, ...]
    counts: NDArray[np.int64]
    """How often each word comes in the training part."""
    train: Ids
    held_out: Ids
    sha256: str
    """Of the text file."""

    def index(self) -> dict[str, int]:
        return {w: i for i, w in enumerate(self.words)}


class Damaged(Exception):  # noqa: N818  # what is wrong, in words; not an error where it can be made anew
    """A folder that does not hold what it should."""


class _Note(msgspec.Struct):
    """`corpus.json`, as far as it is read: SHA-256 by file."""

    sums: dict[str, str]


def write_note(folder: Path, choices: dict[str, Any]) -> None:
    """Closes a folder: the files are on disk, with their sums, and so is what they were made with."""
    names = (TRAIN, HELD_OUT, VOCABULARY)
    note = {**choices, "sums": {name: _sum(folder / name) for name in names}}
    (folder / NOTE).write_bytes(msgspec.json.format(msgspec.json.encode(note)) + b"\n")
    for name in (*names, NOTE):
        with open(folder / name, "rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def read_corpus(folder: Path, sha256: str) -> Corpus:
    """What the folder holds; whatever is wrong with it is `Damaged`, and names the file."""
    sums = _note(folder).sums
    for name in (TRAIN, HELD_OUT, VOCABULARY):
        if not is_regular(folder / name):
            raise Damaged(f"{folder / name} is missing")
        if _sum(folder / name) != sums.get(name):
            raise Damaged(f"{folder / name} is damaged: its SHA-256 is another")
    words, counts = _vocabulary(folder / VOCABULARY)
    return Corpus(words, counts, _ids(folder / TRAIN, len(words)), _ids(folder / HELD_OUT, len(words)), sha256)


def put_in_place(made: Path, folder: Path) -> None:
    """Renames a new folder; what others have put there meanwhile is as good and stays."""
    with _locked(folder.parent):
        try:
            read_corpus(folder, "")
        except Damaged:
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(made, folder)
            sync_folder(folder.parent)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _note(folder: Path) -> _Note:
    path = folder / NOTE
    if not is_regular(path):
        raise Damaged(f"{path} is missing")
    if path.stat().st_size > _LARGEST_NOTE:
        raise Damaged(f"{path} is damaged: it is too long")
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Note)
    except (msgspec.DecodeError, RecursionError):
        raise Damaged(f"{path} is damaged: it is not what offbeat writes") from None


def _vocabulary(path: Path) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    try:
        pairs = [line.split(" ") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        counts = np.array([int(n) for _, n in pairs], dtype=np.int64)
    except (ValueError, OverflowError):
        raise Damaged(f"{path} is damaged: a line is not a word and its count") from None
    words = tuple(w for w, _ in pairs)
    if len(words) < 2 or len(set(words)) < len(words) or counts.min() < 1:
        raise Damaged(f"{path} is damaged: it is no vocabulary")
    return words, counts


def _ids(path: Path, words: int) -> Ids:
    """The numbers of words, mapped; the last of a sentence is the complement of one."""
    size = path.stat().st_size
    if size % 4:
        raise Damaged(f"{path} is damaged: {size:,} bytes are no whole numbers")
    if not size:
        return np.empty(0, dtype=np.int32)
    ids: Ids = np.memmap(path, dtype=np.int32, mode="r")
    if ids.max() >= words or ids.min() < -words:
        raise Damaged(f"{path} is damaged: it names words beyond the {words:,} that there are")
    return ids


def _sum(path: Path) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(CHUNK_BYTES):
            found.update(data)
    return found.hexdigest()
