"""A text file as a stream of words, a few megabytes at a time: it may be larger than memory, and one giant line.

A word is a run of letters and digits, in lower case; a line end is a sentence end. Text must be UTF-8: a byte that is
not is refused with its place, or dropped with `errors="ignore"`. A character cut off by the end of the file is dropped
silently, because files are often cut by size (enwik8 is).
"""

import codecs
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from offbeat.core.errors import DataError

CHUNK = 1 << 22
LINE_END = "\n"
_TOKEN = re.compile(r"[^\W_]+|\n")
_INSIDE = re.compile(r"[^\W_]+\Z")

Errors = Literal["strict", "ignore"]


def tokens(
    path: Path, errors: Errors = "strict", *, chunk: int = CHUNK, limit: int | None = None
) -> Iterator[list[str]]:
    """Lists of words and line ends, in order; `limit` stops after so many bytes, at the end of a word."""
    decode = codecs.getincrementaldecoder("utf-8")(errors)
    held = ""
    read = 0
    with _open(path) as file:
        while data := file.read(chunk if limit is None else min(chunk, limit - read)):
            before = len(decode.getstate()[0])
            try:
                text = held + decode.decode(data).lower()
            except UnicodeDecodeError as e:
                place = read - before + e.start
                raise DataError(
                    f"{path} is not UTF-8: byte {data[max(0, e.start - before)]:#04x} at {place:,}; "
                    "convert it, or drop such bytes with task.errors=ignore"
                ) from None
            read += len(data)
            # The last word may go on in the next chunk; one as long as a chunk is no word, and is cut.
            last = _INSIDE.search(text, max(0, len(text) - 1000))
            held = "" if last is None else last.group()
            yield _TOKEN.findall(text, 0, len(text) - len(held))
    if held:
        yield [held]


def digest(path: Path) -> str:
    """SHA-256 of a file, which names its encoded form."""
    sha256 = hashlib.sha256()
    with _open(path) as file:
        while data := file.read(CHUNK):
            sha256.update(data)
    return sha256.hexdigest()


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as e:
        raise DataError(f"cannot read {path}: {e.strerror}") from None
