"""Where `--cluster` and `cluster="..."` find the cluster that they name."""

import os
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.lab.config import read_toml


def find_cluster(name: str | Path) -> dict[str, Any]:
    """The keys of a cluster: those of the section `[cluster]` of a file, such as `offbeat calibrate` writes."""
    path = Path(name)
    if path.suffix != ".toml" and os.sep not in str(name) and not path.exists():
        raise ConfigError(
            f"a cluster is a number of workers, or a TOML file with a [cluster] section, got {str(name)!r}"
        )
    found = read_toml(path).get("cluster")
    if not isinstance(found, dict):
        raise ConfigError(f"{path} has no [cluster] section")
    return found
