"""The content address of a run: same words, same address, same folder."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offbeat.core.task import Task
from offbeat.lab.config import NONE, Config, Objects
from offbeat.lab.config.code import load_code, modules_of
from offbeat.lab.config.sources import Sources, installed, sources


def address(config: Config, objects: Objects = NONE, task: Task | None = None) -> str | None:
    """The configuration's hash; where there is code of the user's in it, with that of the code.

    `task` is what the configuration makes, where somebody has made it: if it is the user's own, its data count, too.

    None where what is recorded of the objects does not tell everything: data without a fingerprint, a closure.
    """
    if not objects.tell_all:
        return None
    code = code_of(config, objects)
    own = objects.task or (task if ":" in config.task.name else None)
    written = [*([code.digest] if code.files else []), *getattr(own, "data_digests", [])]
    if objects:
        return _digest([objects.recorded(config), *written])
    return _digest([config.hash, *written]) if written else config.hash


def code_of(config: Config, objects: Objects = NONE) -> Sources:
    """What a run is made of that is not ours: the modules behind `package.module:name`, and behind the objects."""
    names = ((config.task.name, objects.task), (config.solver.name, objects.kind))
    code = [load_code(name, "object") for name, given in names if given is None and ":" in name]
    users = [m for m in modules_of(*objects.code()) if not installed(m)]
    return sources([*modules_of(*code), *users])


def default_folder(key: str | None, config: Mapping[str, Any]) -> Path:
    """Where a run goes unless somebody says so: its address or, where it has none, a new folder each time."""
    runs = Path("runs")
    if key is not None:
        return runs / key
    stem, number = _digest(config), 1
    while (runs / f"{stem}-{number}").exists():
        number += 1
    return runs / f"{stem}-{number}"


def _digest(values: Any) -> str:
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
