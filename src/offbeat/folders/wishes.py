"""Two small files by which somebody asks something of a run that is running, and is answered.

Whoever may write to the folder may ask. The run takes the wish, deletes it, and leaves an answer with the same number.
"""

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from offbeat.core.errors import StoreError
from offbeat.folders.description import Workers
from offbeat.folders.opening import there
from offbeat.folders.plain_values import read_json
from offbeat.folders.writing import delete, write_inside

WISH, ANSWER = "wish.json", "answer.json"
Number = Annotated[str, Meta(min_length=1, max_length=64)]


class Wish(Struct):
    """So many workers, please."""

    number: Number
    workers: Workers


class Answer(Struct):
    """What becomes of a wish, or why nothing does."""

    number: Number
    granted: bool
    said: Annotated[str, Meta(max_length=1000)]


T = TypeVar("T", Wish, Answer)


def leave(folder: Path, note: Wish | Answer) -> None:
    name = WISH if isinstance(note, Wish) else ANSWER
    data = msgspec.json.encode(note) + b"\n"
    write_inside(folder, name, lambda file: file.write(data))


def read_answer(folder: Path) -> Answer | None:
    return _read(folder, ANSWER, Answer)


def take_wish(folder: Path) -> Wish | None:
    """The wish, if there is one that can be read. It is there no longer; a folder of that name is nobody's wish."""
    path = folder / WISH
    if not there(folder, WISH) or (path.is_dir() and not path.is_symlink()):
        return None
    try:
        return _read(folder, WISH, Wish)
    except StoreError:
        return None  # nobody can know what was meant
    finally:
        delete(folder / WISH)


def forget(folder: Path) -> None:
    """Wishes are for those who run the run now, and not for the next."""
    delete(folder / WISH)
    delete(folder / ANSWER)


def _read(folder: Path, name: str, kind: type[T]) -> T | None:
    try:
        return read_json(folder, name, kind)
    except FileNotFoundError:
        return None
