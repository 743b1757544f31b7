"""Where `--cluster` and `cluster="..."` find the cluster that they name: a file, or one that is ready."""

import os
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError, unknown
from offbeat.lab.config import read_toml

FORMAT = 1
"""Of the files that `offbeat calibrate` writes."""


@dataclass(frozen=True)
class ReadyCluster:
    """A cluster that comes with the package."""

    name: str
    title: str
    model: str
    """What its times are meant for."""
    cluster: dict[str, Any]
    sources: dict[str, str]
    """Of every key of the cluster: where its number comes from, or that it is assumed."""


@cache
def ready_clusters() -> dict[str, ReadyCluster]:
    """By name, the smallest first."""
    place = files("offbeat.lab").joinpath("ready_clusters")
    there = [Path(str(file)) for file in place.iterdir() if file.name.endswith(".toml")]
    found = [ReadyCluster(path.stem, **read_toml(path)) for path in there]
    return {ready.name: ready for ready in sorted(found, key=lambda r: (r.cluster["workers"], r.name))}


def find_cluster(name: str | Path) -> dict[str, Any]:
    """The keys of a cluster: of the section `[cluster]` of a file, such as `offbeat calibrate` writes, or of a name."""
    path = Path(name)
    if path.suffix != ".toml" and os.sep not in str(name) and not path.exists():
        ready = ready_clusters()
        if str(name) not in ready:
            raise unknown("cluster", f"{name}", [*ready, "a number of workers", "a TOML file with a [cluster] section"])
        return dict(ready[str(name)].cluster)
    values = read_toml(path)
    if (written_in := values.get("format", FORMAT)) != FORMAT:
        raise ConfigError(f"{path} was written by a newer offbeat (format {written_in!r}, this one reads {FORMAT})")
    if not isinstance(values.get("cluster"), dict):
        raise ConfigError(f"{path} has no [cluster] section")
    found: dict[str, Any] = values["cluster"]
    return found
