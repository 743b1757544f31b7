"""Memory that can still be had: the machine's, or what the control groups of this process leave."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from offbeat.core.errors import ConfigError
from offbeat.core.units import format_size


class _Files(NamedTuple):
    """How a version of control groups calls its files, and what it can give back of what is used: cached files."""

    limit: str
    used: str
    cached: str


_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files("memory.max", "memory.current", "inactive_file")


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The least of what the machine and each control group above this process leave."""
    limits = [2**63]
    if found := re.search(r"MemAvailable:\s+(\d+) kB", _text(proc / "meminfo")):
        limits.append(int(found[1]) * 1024)
    return max(0, min([*limits, *_left(proc, groups)]))


def require(needed: int, what: str, instead: str) -> None:
    """Refuses what would not fit, with the numbers."""
    if needed > (available := available_bytes()):
        raise ConfigError(
            f"{what} need about {_size(needed)} of memory, but only {_size(available)} are available: {instead}"
        )


def _size(size: int) -> str:
    """Two digits are all an estimate has."""
    return format_size(int(float(f"{size:.2g}")))


def _left(proc: Path, groups: Path) -> Iterator[int]:
    """What each group leaves, from our own up to the root; in a container its own is the root."""
    for line in _text(proc / "self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        root, files = (groups, _V2) if controllers == "" else (groups / "memory", _V1)
        own = root / path.lstrip("/")
        for group in (own, *own.parents):
            if not group.is_relative_to(root):
                break
            limit, used = _text(group / files.limit).strip(), _text(group / files.used).strip()
            if limit.isdecimal() and used.isdecimal():
                cached = re.search(rf"^{files.cached} (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
                yield int(limit) - int(used) + (int(cached[1]) if cached else 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
