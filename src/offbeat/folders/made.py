"""What a run makes, by exact name: the one list by which a folder is cleared, tidied and removed.

Files of other names are somebody else's and are never touched, and no link is followed to them.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from offbeat.core.errors import StoreError
from offbeat.folders.opening import refuse_link
from offbeat.folders.writing import delete, delete_empty, told

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
    "wish.json",
    "answer.json",
}
_UNFINISHED = {"checkpoint.safetensors", "wish.json", "answer.json"}
_BESIDE = {"tags.json", "lock"}
"""They belong to the folder, and stay when a run begins anew."""
PARTS, SAVES = "parts", "saves"
_PART = re.compile(r"(?:trace|arrivals)-(\d{6,18})\.parquet")
_SAVE = re.compile(r"\d{6,18}\.safetensors")
_NAMES = "|".join(re.escape(name) for name in sorted(_RESULTS | _BESIDE))
RESULTS = "results.parquet"
"""The table of many runs, in the folder that holds theirs."""
_HALF_RESULTS = re.compile(rf"\.{re.escape(RESULTS)}\.\d+\.tmp")
_HALF = re.compile(rf"\.(?:{_NAMES}|{_PART.pattern}|{_SAVE.pattern})\.\d+\.tmp|\.tmp\w{{6}}")
"""What a killed writer leaves: ours, and that of safetensors in older folders."""


def refuse_links(folder: Path) -> None:
    """Nothing is written or deleted where a link points to."""
    for name in (PARTS, SAVES):
        refuse_link(folder / name)


def refuse_others(folder: Path) -> None:
    """Where no run was, files that are called like a run's are somebody else's, and a run would replace them."""
    for path in _made(folder):
        if path.name not in _BESIDE and not _HALF.fullmatch(path.name):
            raise StoreError(f"{folder} has a {path.relative_to(folder)} that is not of a run: name another folder")


def drop_checkpoint(folder: Path) -> None:
    """Nothing goes on from where the run before stood."""
    delete(folder / "checkpoint.safetensors")


def clear(folder: Path) -> None:
    """Forgets what the run before left, when run.json is of another one already."""
    _delete(p for p in _made(folder) if p.name not in _BESIDE and p.name != "run.json")
    for name in (PARTS, SAVES):
        delete_empty(folder / name)


def tidy(folder: Path) -> None:
    """Deletes what only an unfinished run needs."""
    refuse_links(folder)
    _delete(_inside(folder, PARTS, _PART))
    _delete(p for p in _files(folder / SAVES) if _HALF.fullmatch(p.name))
    _delete(p for p in _files(folder) if p.name in _UNFINISHED or _HALF.fullmatch(p.name))
    delete_empty(folder / PARTS)


def tidy_results(folder: Path) -> None:
    """Deletes what a killed writer of the table of many runs has left."""
    _delete(p for p in _files(folder) if _HALF_RESULTS.fullmatch(p.name))


def drop_parts(folder: Path, keep: int) -> None:
    """Deletes the parts of the trace that are newer than a checkpoint after so many."""
    found = ((p, _PART.fullmatch(p.name)) for p in _inside(folder, PARTS, _PART))
    _delete(p for p, part in found if part is None or int(part[1]) >= keep)


def drop_saves(folder: Path, keep: int) -> None:
    """Deletes the snapshots that are newer than a checkpoint after so many."""
    found = _inside(folder, SAVES, _SAVE)
    _delete(p for p in found if not _SAVE.fullmatch(p.name) or int(p.stem) >= keep)


def remove(folder: Path) -> None:
    """Deletes everything that a run made and, if nothing else is in it, the folder."""
    found = _made(folder)
    _delete(p for p in found if p.name != "run.json")  # which makes it a run, and goes last
    _delete(p for p in found if p.name == "run.json")
    for path in (folder / PARTS, folder / SAVES, folder):
        delete_empty(path)


def files(folder: Path) -> list[str]:
    """All that a run made and has not deleted, by their names in the folder; a half-written file is none."""
    found = (str(p.relative_to(folder)) for p in _made(folder))
    return [name for name in found if is_made(name)]


def is_made(name: str) -> bool:
    """Whether a run makes a file of this name."""
    inside, _, last = name.rpartition("/")
    if inside:
        return bool({PARTS: _PART, SAVES: _SAVE}[inside].fullmatch(last)) if inside in (PARTS, SAVES) else False
    return name in _RESULTS


def saves(folder: Path) -> list[str]:
    """The snapshots along the way, in order, by their names in the folder."""
    refuse_links(folder)
    return sorted(f"{SAVES}/{p.name}" for p in _files(folder / SAVES) if _SAVE.fullmatch(p.name))


def _made(folder: Path) -> list[Path]:
    here = [p for p in _files(folder) if p.name in _RESULTS | _BESIDE or _HALF.fullmatch(p.name)]
    return [*_inside(folder, PARTS, _PART), *_inside(folder, SAVES, _SAVE), *here]


def _inside(folder: Path, name: str, pattern: re.Pattern[str]) -> list[Path]:
    refuse_links(folder)
    return [p for p in _files(folder / name) if pattern.fullmatch(p.name) or _HALF.fullmatch(p.name)]


def _files(folder: Path) -> list[Path]:
    """Everything in it but folders; a link counts as the link that it is."""
    if not folder.is_dir():
        return []
    with told("list", folder):
        return sorted(p for p in folder.iterdir() if p.is_symlink() or not p.is_dir())


def _delete(files: Iterable[Path]) -> None:
    for path in list(files):
        delete(path)
