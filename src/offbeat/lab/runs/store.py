"""Keeping order among run folders: tags, and removal of what a run made and nothing else."""

import json
from pathlib import Path

from offbeat.core.errors import ConfigError
from offbeat.core.legible import legible
from offbeat.folders import made
from offbeat.folders.description import read_description
from offbeat.folders.limits import MOST_TAGS
from offbeat.folders.side_notes import read_tags
from offbeat.folders.writing import write_inside
from offbeat.lab.runs.holding import Hold


def tag(path: Path, add: list[str], drop: list[str]) -> list[str]:
    """The folder's tags afterwards; they lie beside run.json, which belongs to the run."""
    for name in [*add, *drop]:
        if not name.strip() or len(name) > 100 or legible(name) != name:
            raise ConfigError(f"a tag must have 1 to 100 characters that can be seen, got {name!r}")
    read_description(path)
    tags = [t for t in dict.fromkeys([*read_tags(path), *add]) if t not in drop]
    if len(tags) > MOST_TAGS:
        raise ConfigError(f"a run can have {MOST_TAGS:,} tags, got {len(tags):,}")
    write_inside(path, "tags.json", lambda file: file.write(json.dumps(tags).encode() + b"\n"))
    return tags


def remove(path: Path) -> None:
    """Deletes a run. Files that no run makes stay, and then so does the folder."""
    read_description(path)
    Hold(path).refuse_taken()
    made.remove(path)
