"""What has come of a download, kept under a name of its own, so that a later call goes on with it."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from offbeat.data.rawfiles import TEMPORARY, is_regular

_LONGEST_VERSION = 1000


class Part:
    """A file that is being filled, ours alone, and beside it which version of the original it is part of."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._note = path.with_suffix(".version")
        self._whole = False
        self.failed = False
        """Whether it could not be written."""
        self.version = self._read_version()

    @property
    def size(self) -> int:
        """How much of a known version there is: without one, nobody could tell whether the rest belongs to it."""
        return os.fstat(self._file.fileno()).st_size if self.version else 0

    def begin(self, offset: int, version: str | None) -> None:
        """The next bytes go there, and all beyond is forgotten. The version comes last: an empty part has none."""
        self._file.seek(offset)
        self._file.truncate()
        if version is not None and len(version) > _LONGEST_VERSION:
            version = None
        if version != self.version:
            self.version = version
            self._note.unlink(missing_ok=True)
            if version:
                self._write_version(version)

    def write(self, chunk: bytes) -> int:
        """What a full disk takes no more of is not kept there either: the next call needs the room."""
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            return len(chunk)
        except OSError:
            self.failed = True
            self.forget()
            raise

    def forget(self) -> None:
        """Nobody is to go on with it."""
        self.version = None
        self._note.unlink(missing_ok=True)
        with suppress(OSError):
            self._file.truncate(0)

    def move_to(self, target: Path) -> None:
        """It is whole."""
        self._note.unlink(missing_ok=True)
        os.replace(self._path, target)
        self._whole = True

    def close(self) -> None:
        """Kept only if somebody can go on with it; until it is closed, nobody else can begin."""
        if not self._whole and not self.version:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def _read_version(self) -> str | None:
        if not is_regular(self._note) or self._note.stat().st_size > _LONGEST_VERSION:
            return None
        return self._note.read_text(encoding="utf-8", errors="replace")

    def _write_version(self, version: str) -> None:
        try:
            with self._note.open("x", encoding="utf-8") as note:
                note.write(version)
        except OSError:
            self.failed = True
            self.forget()
            raise


@contextmanager
def part_of(url: str, kept: Path, private: Path) -> Iterator[Part]:
    """What is kept of this address in `kept`; while another process fills that, a new one in `private`."""
    name = f"{TEMPORARY}{sha256(url.encode()).hexdigest()[:16]}.part"  # swept when a day old
    path = kept / name
    file = _locked(path)
    if file is None:
        path = private / name
        file = path.open("x+b", buffering=0)
    part = Part(path, file)
    try:
        yield part
    finally:
        part.close()


def _locked(path: Path) -> BinaryIO | None:
    """The file, made if need be, open for us alone; None if it is another's, or no file of its own but a link, say."""
    while True:
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError:
            if path.is_symlink() or path.exists():
                return None
            raise
        file = os.fdopen(number, "r+b", buffering=0)
        try:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                file.close()
                return None
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(about, os.stat(path)):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        file.close()  # its last owner has just moved it away: ours would be another file
