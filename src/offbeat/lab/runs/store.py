"""Keeping order among run folders: tags, and removal of what a run made and nothing else."""

import json
from pathlib import Path

from offbeat.core.errors import ConfigError, StoreError
from offbeat.lab.runs import made
from offbeat.lab.runs.folder import Folder, replacing


def tag(path: Path, add: list[str], drop: list[str]) -> list[str]:
    """The folder's tags afterwards; they lie beside run.json, which belongs to the run."""
    for name in [*add, *drop]:
        if not name.strip() or len(name) > 100:
            raise ConfigError(f"a tag must have 1 to 100 characters, got {name!r}")
    Folder(path).read()
    file = path / "tags.json"
    try:
        now = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    except (OSError, ValueError) as e:
        raise StoreError(f"{file} cannot be read: {e}") from None
    tags = [t for t in dict.fromkeys([*now, *add]) if t not in drop]
    with replacing(file) as beside:
        beside.write_text(json.dumps(tags) + "\n", encoding="utf-8")
    return tags


def remove(path: Path) -> None:
    """Deletes a run. Files that no run makes stay, and then so does the folder."""
    folder = Folder(path)
    folder.read()
    if folder.running:
        raise StoreError(f"{path} is in use: another process is running it")
    try:
        made.remove(path)
    except OSError as e:
        raise StoreError(f"cannot remove {path}: {e.strerror}") from None
