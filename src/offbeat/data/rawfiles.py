"""Raw files on disk: checking them, finding them under other forms, and putting them in place whole or not at all."""

import gzip
import hashlib
import lzma
import os
import shutil
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO

from offbeat.data.datasets import RawFile

CHUNK_BYTES = 1 << 20
TEMPORARY = ".offbeat-"  # what a killed process leaves behind is known by this prefix
STALE_SECONDS = 24 * 3600
BROKEN = (
    *(OSError, EOFError, KeyError, RuntimeError, ValueError, OverflowError, struct.error),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError),
)
"""What Python's readers raise on files that are not what they should be."""


class _UnreadableError(Exception):
    """A candidate that cannot be read; kept apart from OSError, which here means that writing failed."""


def flaw(path: Path, file: RawFile) -> str | None:
    """Why `path` is not the canonical file, or None if it is."""
    if not path.exists():
        return f"{path} is missing"
    if not path.is_file():  # a pipe would be waited for
        return f"{path} is not a file"
    if path.stat().st_size != file.size:
        return difference(path, file, path.stat().st_size, "")
    digest, size = hashlib.sha256(), 0
    try:
        for chunk in _chunks(path, file.name):
            digest.update(chunk)
            size += len(chunk)
    except _UnreadableError as error:
        return str(error)
    return difference(path, file, size, digest.hexdigest())


def difference(path: Path, file: RawFile, size: int, sha256: str) -> str | None:
    """How bytes read from `path` differ from the canonical file's, or None."""
    if size < file.size:
        return f"{path} is truncated: {size:,} of {file.size:,} bytes"
    if size > file.size:
        return f"{path} is too long: more than {file.size:,} bytes"
    if sha256 != file.sha256:
        return f"{path} has a wrong checksum: SHA-256 {sha256[:12]}..., expected {file.sha256[:12]}..."
    return None


def is_regular(path: Path) -> bool:
    """Whether it is a file itself: no link, no pipe, no device."""
    return path.is_file() and not path.is_symlink()


def most_packed(size: int) -> int:
    """The most bytes that a file of this size takes in any packing that is any use."""
    return size + size // 100 + (64 << 10)


def variants(name: str) -> tuple[str, str, str]:
    """The names under which a canonical file may be found."""
    return name, f"{name}.gz", f"{name}.zip"


def candidates(folder: Path, name: str) -> list[Path]:
    """Files under `folder`, up to two levels down, that may be or hold the canonical file `name`."""
    found = (
        path for depth in ("", "*/", "*/*/") for variant in variants(name) for path in folder.glob(depth + variant)
    )
    return [path for path in found if path.is_file()]


def install(found: Iterable[Path], file: RawFile, folder: Path) -> str | None:
    """Put the first candidate that is the canonical file into `folder`; else say what is wrong with the first one."""
    first_flaw: str | None = None
    for path in found:
        problem = _copy(path, file, folder)
        if problem is None:
            return None
        first_flaw = first_flaw or problem
    return first_flaw or f"{file.name} is not there"


def _copy(path: Path, file: RawFile, folder: Path) -> str | None:
    """Decompress, verify, and only then rename into place; the temporary file never outlives this call."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{TEMPORARY}{token_hex(8)}"
    digest, size = hashlib.sha256(), 0
    try:
        with part.open("xb") as out:
            for chunk in _chunks(path, file.name):
                size += len(chunk)
                if size > file.size:  # do not fill the disk with something else
                    break
                out.write(chunk)
                digest.update(chunk)
            out.flush()
            os.fsync(out.fileno())
        problem = difference(path, file, size, digest.hexdigest())
        if problem is None:
            os.replace(part, folder / file.name)
            sync_folder(folder)
        return problem
    except _UnreadableError as error:
        return str(error)
    finally:
        part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Names that were given or taken in it last, whatever happens to the machine."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _chunks(path: Path, name: str) -> Iterator[bytes]:
    try:
        with _opened(path, name) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk
    except BROKEN as error:
        raise _UnreadableError(f"{path} cannot be read: {reason(error)}") from error


@contextmanager
def _opened(path: Path, name: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if path.name == f"{name}.zip":
        with zipfile.ZipFile(path) as zipped, zipped.open(name) as member:
            yield member
    else:
        with gzip.open(path) if path.name == f"{name}.gz" else path.open("rb") as stream:
            yield stream


def sweep(folder: Path) -> None:
    """Remove what killed processes left here; a day old, so that nobody can still be writing it."""
    for path in folder.glob(f"{TEMPORARY}*"):
        try:
            if time.time() - path.lstat().st_mtime < STALE_SECONDS:
                continue
        except OSError:
            continue  # its owner has just removed it
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def reason(error: BaseException) -> str:
    """One short line for an error of the system or of a library; what a server sent cannot steer a terminal."""
    inner = getattr(error, "reason", None)  # what a URLError wraps
    if isinstance(inner, BaseException):
        return reason(inner)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = (lines[0] if lines else type(error).__name__)[:160]
    return "".join(c if c.isprintable() else "?" for c in line)
