"""Processes as the kernel knows them: who is below whom, what state they are in, what memory they share."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LIMIT = 100  # seconds that anything may take before a test fails


def until(condition: Callable[[], object], what: str) -> None:
    """Waits, with a limit, for something that must become true."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT} s for: {what}"
        time.sleep(0.02)


def descendants(pid: int) -> set[int]:
    """All processes below this one, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
    found: set[int] = set()
    todo = [pid]
    while todo:
        at = todo.pop()
        children = [p for p, parent in parents.items() if parent == at]
        found.update(children)
        todo += children
    return found


def state(pid: int) -> str:
    """The kernel's letter for it: T is stopped, Z has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def alive(pid: int) -> bool:
    return state(pid) != "Z"


def sharing() -> set[int]:
    """Processes that map the engine's shared memory."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if "memfd:offbeat" in (entry / "maps").read_text():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def marked(mark: str) -> set[int]:
    """Processes that were started, by whatever way, with this in their environment."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes() and alive(int(entry.name)):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def shm_files(pid: int) -> set[str]:
    """The files in /dev/shm that a process maps or has open: they would stay there after a kill."""
    names = {line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            names.add(os.readlink(fd))
    return {name for name in names if name.startswith("/dev/shm/")}


def by_age(pids: set[int]) -> list[int]:
    """The oldest first. Of a run's forker the oldest child is the server, and worker 0 is next."""
    return sorted(pids, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """`offbeat run` in a process of its own, with its workers at work."""
    processes = []

    def start(*arguments: str, **options: Any) -> Any:
        command = [sys.executable, "-m", "offbeat", "run", "quadratic", "--engine", "local", "--workers", "2"]
        command += ["--out", str(tmp_path / "run"), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        processes.append(process)
        until(
            lambda: len(descendants(process.pid)) >= 5 or process.poll() is not None,
            "launcher, forker, server",
        )
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=LIMIT)  # whoever is left of its family holds the pipe open
