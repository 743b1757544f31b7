"""Opening a file of a run's folder: a plain file, inside the folder, not too large; no link, pipe or device."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from offbeat.core.errors import StoreError
from offbeat.core.units import format_size

_KINDS = ((stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def opened(folder: Path, name: str, most: float) -> Iterator[BinaryIO]:
    """The file `name` of a folder, such as `saves/000001.safetensors`, if it has at most so many bytes.

    FileNotFoundError where there is none; whatever else is wrong is a StoreError that names the file.
    """
    path = folder / name
    try:
        with _inside(folder, name) as (place, last):
            refuse_odd(os.stat(last, dir_fd=place, follow_symlinks=False), path)
            file = open(os.open(last, _READ, dir_fd=place), "rb")  # noqa: SIM115
    except (FileNotFoundError, StoreError):
        raise
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, "not there", str(path)) from None
    except (OSError, ValueError) as e:
        raise StoreError(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}") from None
    with file:
        found = os.fstat(file.fileno())
        refuse_odd(found, path)
        if found.st_size > most:
            raise StoreError(f"{path} cannot be read: it has {format_size(found.st_size)}, more than can be meant")
        yield file


@contextmanager
def _inside(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder that holds the file, and the file's own name; nothing below `folder` is a link."""
    *above, last = name.split("/")
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in above:
            refuse_link(folder / part)
            inner = os.open(part, _READ | os.O_DIRECTORY, dir_fd=place)
            os.close(place)
            place = inner
        yield place, last
    finally:
        os.close(place)


def refuse_odd(found: os.stat_result, path: Path) -> None:
    """A run's files are plain files."""
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS if test(found.st_mode)), "a device")
        raise StoreError(f"{path} is {kind}: a run's folder holds plain files only")


def refuse_link(path: Path) -> None:
    """Nothing is read, written or deleted where a link points to."""
    if path.is_symlink():
        raise StoreError(f"{path} is a link: a run reads, writes and deletes in its own folder only")


def there(folder: Path, name: str) -> bool:
    """Whether something of that name is there, if only a link to nowhere."""
    with suppress(OSError, ValueError):
        os.lstat(folder / name)
        return True
    return False


def read_bytes(folder: Path, name: str, most: float) -> bytes:
    """The whole file; FileNotFoundError where there is none."""
    with opened(folder, name, most) as file:
        try:
            return file.read(os.fstat(file.fileno()).st_size)  # no more is asked for than is there
        except OSError as e:
            raise StoreError(f"{folder / name} cannot be read: {e.strerror}") from None
