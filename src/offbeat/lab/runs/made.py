"""What a run makes, by exact name: the one list by which a folder is cleared, tidied and removed.

Files of other names are somebody else's and are never touched, and no link is followed to them.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from offbeat.core.errors import StoreError

_RESULTS = {
    "run.json",
    "trace.parquet",
    "arrivals.parquet",
    "metrics.parquet",
    "diagnostics.parquet",
    "weights.safetensors",
    "best.safetensors",
    "checkpoint.safetensors",
    "partition.json",
    "evaluation.json",
    "vocabulary.txt",
}
_BESIDE = {"tags.json", "lock"}
"""They belong to the folder, and stay when a run begins anew."""
_PARTS, _SAVES = "parts", "saves"
_PART = re.compile(r"(?:trace|arrivals)-(\d{6,})\.parquet")
_SAVE = re.compile(r"\d{6,}\.safetensors")
_HALF = re.compile(r"\..+\.\d+\.tmp|\.tmp\w{6}")
"""What a killed writer leaves: ours, and that of safetensors."""


def refuse_links(folder: Path) -> None:
    """Nothing is written or deleted where a link points to."""
    for name in (_PARTS, _SAVES):
        if (folder / name).is_symlink():
            raise StoreError(f"{folder / name} is a link: a run writes and deletes in its own folder only")


def clear(folder: Path) -> None:
    """Forgets the run that was here, for another one."""
    _delete(p for p in _made(folder) if p.name not in _BESIDE)
    for name in (_PARTS, _SAVES):
        _delete_empty(folder / name)


def tidy(folder: Path) -> None:
    """Deletes what only an unfinished run needs."""
    inside = [*_inside(folder, _PARTS, _PART), *_inside(folder, _SAVES, _HALF)]
    _delete([*inside, *(p for p in _here(folder) if p.name == "checkpoint.safetensors" or _HALF.fullmatch(p.name))])
    _delete_empty(folder / _PARTS)


def drop_parts(folder: Path, keep: int) -> None:
    """Deletes the parts of the trace that are newer than a checkpoint after so many."""
    found = ((p, _PART.fullmatch(p.name)) for p in _inside(folder, _PARTS, _PART))
    _delete(p for p, part in found if part is not None and int(part[1]) >= keep)


def remove(folder: Path) -> None:
    """Deletes everything that a run made and, if nothing else is in it, the folder."""
    _delete(_made(folder))
    for path in (folder / _PARTS, folder / _SAVES, folder):
        _delete_empty(path)


def _made(folder: Path) -> list[Path]:
    here = [p for p in _here(folder) if p.name in _RESULTS | _BESIDE or _HALF.fullmatch(p.name)]
    return [*_inside(folder, _PARTS, _PART), *_inside(folder, _SAVES, _SAVE), *here]


def _here(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.is_symlink() or p.is_file()] if folder.is_dir() else []


def _inside(folder: Path, name: str, pattern: re.Pattern[str]) -> Iterator[Path]:
    refuse_links(folder)
    return (p for p in _here(folder / name) if pattern.fullmatch(p.name) or _HALF.fullmatch(p.name))


def _delete(files: Iterable[Path]) -> None:
    for path in list(files):
        path.unlink(missing_ok=True)


def _delete_empty(folder: Path) -> None:
    with suppress(OSError):  # it is not there, or holds what is not ours
        folder.rmdir()
