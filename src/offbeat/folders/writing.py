"""Writing into a run's folder: a file is there as a whole or not at all, and a failure is one line.

Every operation on files that a run makes is in this module, so that tests can fail or be killed at each of them.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from offbeat.core.errors import StoreError
from offbeat.folders.opening import refuse_link

_followers: list[Callable[[str, Path], None]] = []


@contextmanager
def followed(tell: Callable[[str, Path], None]) -> Iterator[None]:
    """Meanwhile, `tell` hears of all that was done, in order: "write", "delete" or "delete folder", and where."""
    _followers.append(tell)
    try:
        yield
    finally:
        _followers.remove(tell)


def _tell(what: str, path: Path) -> None:
    for tell in _followers:
        tell(what, path)


@contextmanager
def told(what: str, path: Path) -> Iterator[None]:
    """An error of the system in one line: a full disk, a folder that is read-only or has gone."""
    try:
        yield
    except OSError as e:
        raise StoreError(f"cannot {what} {path}: {e.strerror or e}") from None


def make_folder(path: Path) -> None:
    with told("make", path):
        os.makedirs(path, exist_ok=True)


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes beside `path`, to the disk, and puts it in place. Where that fails, `path` is what it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with told("write", path):
        try:
            with suppress(FileNotFoundError):  # of a killed process that had our number
                os.unlink(beside)
            with open(beside, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
        _settle(path.parent)
    _tell("write", path)


def write_inside(folder: Path, name: str, write: Callable[[BinaryIO], object]) -> None:
    """The same for a file of a run's folder, such as `parts/trace-000000.parquet`."""
    path = folder / name
    if path.parent != folder:
        refuse_link(path.parent)
        with told("make", path.parent), suppress(FileExistsError):
            os.mkdir(path.parent)
    write_file(path, write)


def make_way(path: Path) -> None:
    """Deletes a link, a pipe or whatever else of that name is no plain file: nothing is written through it."""
    with told("write", path), suppress(FileNotFoundError):
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            os.unlink(path)


def delete(path: Path) -> None:
    """A file, or a link itself; nothing where there is none."""
    with told("delete", path), suppress(FileNotFoundError):
        os.unlink(path)
    _tell("delete", path)


def delete_empty(folder: Path) -> None:
    """A folder in which nothing is left; whatever else it holds is not ours."""
    with suppress(OSError):
        os.rmdir(folder)
    _tell("delete folder", folder)


def _settle(folder: Path) -> None:
    """The names in a folder, too, are on the disk."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
