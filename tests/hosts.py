"""The hosts of the tests: four, with a Ray that notices soon when one of them is lost."""

import os
from pathlib import Path

from offbeat.lab.validation.ray_hosts import RayHosts

COUNT = 4
_SOON = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_health_check_initial_delay_ms": "1000",
}


def hosts(name: str = f"ob{os.getpid()}") -> RayHosts:
    """Those of this name, whether they are there already or not. Ray's folder is short: its sockets lie below."""
    return RayHosts(name, COUNT, Path("/tmp") / name.replace("ob", "obr"), _SOON)
