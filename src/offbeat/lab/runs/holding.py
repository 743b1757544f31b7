"""Who has a run's folder: one process at a time, and the next one is told which."""

import fcntl
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from offbeat.core.errors import StoreError
from offbeat.folders.opening import refuse_link, refuse_odd
from offbeat.folders.plain_values import parsed
from offbeat.folders.writing import delete, delete_empty, make_folder

_SHORT = 1000
"""Bytes of a lock file that somebody reads."""
_TRIES = 10


class _Holder(Struct):
    pid: int
    since: str


class Hold:
    """The lock on a folder. It is the system's, and goes with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / "lock"
        self._file: int | None = None
        self._place: tuple[int, int] | None = None

    def take(self) -> None:
        """Makes the folder and locks it; a StoreError says who has it."""
        if self._folder.exists() and not self._folder.is_dir():
            raise StoreError(f"cannot write to {self._folder}: it is a file, and a run needs a folder")
        for _ in range(_TRIES):
            file = self._made_and_locked()
            with suppress(FileNotFoundError):
                place = _place(self._folder)
                if _place(self._path) == _identity(os.fstat(file)):
                    break
            os.close(file)  # whoever had it before us deleted it, with the folder, as nothing was begun there
        else:
            raise StoreError(f"cannot write to {self._folder}: it has gone")
        self._file, self._place = file, place
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with suppress(OSError):  # on a full disk, others are told less
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({"pid": os.getpid(), "since": now}).encode(), 0)

    def _made_and_locked(self) -> int:
        make_folder(self._folder)
        try:
            file = self._open(os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            raise StoreError(f"cannot write to {self._folder}: it has gone") from None
        if not _lock(file):
            said = _holder(file, self._path)
            os.close(file)
            raise StoreError(f"{self._folder} is in use: {said}")
        return file

    def release(self) -> None:
        """Lets go; a folder in which nothing was begun is not left behind."""
        if self._file is None:
            return
        with suppress(OSError):
            os.ftruncate(self._file, 0)
        with suppress(OSError, StoreError):
            self.refuse_another()
            if os.listdir(self._folder) == ["lock"]:
                delete(self._path)
                delete_empty(self._folder)
        os.close(self._file)
        self._file = None

    def __enter__(self) -> "Hold":
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def refuse_another(self) -> None:
        """While it is held: a StoreError where a link or another folder has been put in its place."""
        with suppress(OSError):  # a folder that has gone is told by whoever wants to write to it
            if self._file is not None and _place(self._folder) != self._place:
                raise StoreError(
                    f"{self._folder} is another folder now than when its run began: nothing is written to it"
                )

    def refuse_taken(self) -> None:
        """A StoreError where a live process has the folder."""
        try:
            file = self._open(os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            if not _lock(file):
                raise StoreError(f"{self._folder} is in use: {_holder(file, self._path)}")
        finally:
            os.close(file)

    def taken(self) -> bool:
        """Whether a live process has the folder."""
        try:
            self.refuse_taken()
        except StoreError:
            return True
        return False

    def _open(self, how: int) -> int:
        """The lock file, which is nobody else's: no link, no pipe, and no second name of a file elsewhere."""
        refuse_link(self._path)
        try:
            file = os.open(self._path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            raise
        except OSError as e:
            raise StoreError(f"cannot write to {self._folder}: {e.strerror}") from None
        found = os.fstat(file)
        try:
            refuse_odd(found, self._path)
            if found.st_nlink > 1:
                raise StoreError(
                    f"{self._path} is a file of another name, too: a run's folder holds its own files only"
                )
        except StoreError:
            os.close(file)
            raise
        return file


def _place(folder: Path) -> tuple[int, int]:
    """The folder or file itself, whatever it is called."""
    return _identity(os.stat(folder))


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(file: int, path: Path) -> str:
    """Whatever the file says, it is text of somebody else's."""
    try:
        found = parsed(os.pread(file, _SHORT, 0), path, _Holder)
    except (StoreError, OSError):
        return "another process is running it"
    return f"process {found.pid} is running it, since {found.since[:19].replace('T', ' ')} UTC"
