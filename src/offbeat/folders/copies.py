"""A run's folder on two machines: what is done to the one, in order, is done to the other.

So the copy goes through the same states as the original, and is as good to go on from, whenever either is lost.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

from msgspec import Struct

from offbeat.core.errors import StoreError
from offbeat.core.legible import legible
from offbeat.folders import made
from offbeat.folders.opening import opened
from offbeat.folders.writing import delete, delete_empty, followed, write_inside


class Change(Struct):
    """One thing that was done to a folder: `data` was written, or (None) what was there is gone."""

    name: str
    data: bytes | None = None
    folder: bool = False


def contents(folder: Path) -> list[Change]:
    """What would make an empty folder like this one; run.json comes last, as it does in a run."""
    return [Change(n, _bytes(folder, n)) for n in sorted(made.files(folder), key=lambda name: name == "run.json")]


def _bytes(folder: Path, name: str) -> bytes:
    with opened(folder, name, inf) as file:
        return file.read()


def apply(folder: Path, change: Change) -> None:
    """Does the same here. Only what a run makes is written or deleted."""
    if change.folder:
        if change.name in (made.PARTS, made.SAVES):
            delete_empty(folder / change.name)
    elif not made.is_made(change.name):
        raise StoreError(f"{folder}: {legible(change.name)} is no file of a run")
    elif change.data is None:
        delete(folder / change.name)
    else:
        data = change.data
        write_inside(folder, change.name, lambda file: file.write(data))


@contextmanager
def changes(folder: Path, tell: Callable[[Change], None]) -> Iterator[None]:
    """Tells of every change of this folder while it lasts."""

    def hear(what: str, path: Path) -> None:
        if not path.is_relative_to(folder) or path == folder:
            return
        name = str(path.relative_to(folder))
        if what == "write":
            tell(Change(name, _bytes(folder, name)))
        elif what == "delete folder" or made.is_made(name):
            tell(Change(name, folder=what == "delete folder"))

    with followed(hear):
        yield
