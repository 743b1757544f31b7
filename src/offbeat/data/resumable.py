"""What has come of a download, kept under a name of its own, so that a later call goes on with it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from offbeat.data.rawfiles import TEMPORARY


class Part:
    """A file that is being filled, ours alone, and beside it which version of the original it is part of."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._note = path.with_suffix(".version")
        self._whole = False
        self.version = self._note.read_text(encoding="utf-8") if self._note.exists() else None

    @property
    def size(self) -> int:
        """How much of a known version there is: without one, nobody could tell whether the rest belongs to it."""
        return os.fstat(self._file.fileno()).st_size if self.version else 0

    def begin(self, offset: int, version: str | None) -> None:
        """The next bytes go there, and all beyond is forgotten. The version comes last: an empty part has none."""
        self._file.seek(offset)
        self._file.truncate()
        if version != self.version:
            self.version = version
            self._note.unlink(missing_ok=True)
            if version:
                self._note.write_text(version, encoding="utf-8")

    def write(self, chunk: bytes) -> int:
        return self._file.write(chunk)

    def move_to(self, target: Path) -> None:
        """It is whole."""
        self._file.flush()
        self._note.unlink(missing_ok=True)
        os.replace(self._path, target)
        self._whole = True

    def close(self) -> None:
        """Kept only if somebody can go on with it; until it is closed, nobody else can begin."""
        if not self._whole and not self.version:
            self._path.unlink()
        self._file.close()


@contextmanager
def part_of(url: str, kept: Path, private: Path) -> Iterator[Part]:
    """What is kept of this address in `kept`; while another process fills that, a new one in `private`."""
    name = f"{TEMPORARY}{sha256(url.encode()).hexdigest()[:16]}.part"  # swept when a day old
    path = kept / name
    file = _locked(path)
    if file is None:
        path = private / name
        file = path.open("x+b")
    part = Part(path, file)
    try:
        yield part
    finally:
        part.close()


def _locked(path: Path) -> BinaryIO | None:
    """The file, made if need be, open for us alone; None if it is another's."""
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        file.close()  # its last owner has just moved it away: ours would be another file
