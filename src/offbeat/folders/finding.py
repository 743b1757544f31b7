"""The runs of folders and patterns. No link among them is followed."""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from offbeat.core.errors import OffbeatWarning, StoreError
from offbeat.core.legible import legible
from offbeat.folders.opening import there
from offbeat.folders.run_files import RunFiles

_DEEPEST = 64


def find(patterns: Iterable[str | Path], *, whole: bool = False) -> list[RunFiles]:
    """A folder that holds runs stands for all of them. Sorted, each once; `whole` reads their tables, too.

    A damaged run is an error where it is named; among others, it is left out, and one warning says how many were.
    """
    paths: dict[Path, None] = {}
    patterns = list(patterns)
    named = {Path(pattern) for pattern in patterns}
    for pattern in patterns:
        found = _folders(str(pattern))
        if not found:
            if os.path.lexists(pattern):
                raise StoreError(f"{pattern} is not a run folder: it has no run.json")
            raise StoreError(f"no run at {pattern}")
        paths.update(dict.fromkeys(found))
    runs: list[RunFiles] = []
    damaged: list[StoreError] = []
    for path in paths:
        try:
            run = RunFiles.open(path)
            _ = run.tags
            if whole:
                run.read_all()
            runs.append(run)
        except StoreError as e:
            if path in named:
                raise
            damaged.append(e)
    if damaged and not runs:
        raise StoreError(f"{damaged[0]}" + (f"; and {len(damaged) - 1} more like it" if len(damaged) > 1 else ""))
    leave_out(damaged)
    return runs


def leave_out(damaged: Sequence[StoreError]) -> None:
    """Says which runs were passed over: the first few by name, and how many."""
    for error in damaged[:3]:
        warnings.warn(f"left out: {legible(error)}", OffbeatWarning, stacklevel=3)
    if len(damaged) > 3:
        warnings.warn(f"left out: {len(damaged)} damaged runs in all", OffbeatWarning, stacklevel=3)


def _folders(pattern: str) -> Sequence[Path]:
    path = Path(pattern)
    if there(path, "run.json"):
        return [path]
    names = [path] if path.is_dir() else _matches(path)
    found = {folder for name in names for folder in _below(name)}
    return sorted(found, key=lambda p: [_natural(part) for part in p.parts])


def _matches(pattern: Path) -> list[Path]:
    """What a pattern with wildcards stands for; `**` does not follow links."""
    parts = pattern.parts
    first = next((i for i, part in enumerate(parts) if any(c in part for c in "*?[")), None)
    if first is None:
        return [pattern] if pattern.name == "run.json" and os.path.lexists(pattern) else []
    try:
        return sorted(Path(*parts[:first]).glob(str(Path(*parts[first:]))))
    except (ValueError, NotImplementedError, OSError) as e:
        raise StoreError(f"no run at {pattern}: {e}") from None


def _below(top: Path) -> Iterator[Path]:
    """Every folder from here on that has a run.json."""
    if top.name == "run.json" and not top.is_dir():
        yield top.parent
        return
    waiting = [(top, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        if any(e.name == "run.json" for e in entries):
            yield folder
        if depth < _DEEPEST:
            waiting += [(folder / e.name, depth + 1) for e in entries if e.is_dir(follow_symlinks=False)]


def _natural(name: str) -> tuple[str, int, str]:
    """asgd-2 before asgd-10."""
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    return stem, int(number[:18] or -1), name
