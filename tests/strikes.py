"""A disk that fails, or a process that dies, at any one file operation of a run.

A kill is played in this process: from that operation on nothing reaches the disk any more, whatever is still cleaned up
on the way out. What Python had not written yet is lost, as it is in a real one.
"""

import errno
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from offbeat.folders import writing
from offbeat.lab.runs import holding

_OPERATIONS = ("makedirs", "mkdir", "open", "replace", "fsync", "unlink", "rmdir", "ftruncate", "pwrite")
_TAKES_ROOM = ("makedirs", "mkdir", "open", "write", "fsync", "replace", "ftruncate", "pwrite")
_OF_THE_WALL = ("created", "ended", "wall_seconds", "samples_per_second")


class KilledError(BaseException):
    """Nothing catches a kill."""


@dataclass
class Disk:
    """Strikes at operation `at`, before or after it; `full` makes it a full disk, for good or for once."""

    at: int | None = None
    after: bool = False
    full: bool = False
    for_good: bool = True
    seen: list[str] = field(default_factory=list)
    _dead: bool = False
    _held: list[int] = field(default_factory=list)

    def does(self, name: str, operation: Callable[[], Any]) -> Any:
        if self._dead:
            self._strike(name)
        struck = len(self.seen) == self.at
        self.seen.append(name)
        if struck and not self.after:
            self._strike(name)
        try:
            return operation()
        finally:
            if struck and self.after:
                self._strike(name)

    def _strike(self, name: str) -> None:
        if not self.full:
            self._dead = True
            raise KilledError
        self._dead = self.for_good
        if name in _TAKES_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        """In place of the module `os`."""
        real = getattr(os, name)
        if name not in _OPERATIONS:
            return real

        def counted(*words: Any, **options: Any) -> Any:
            done = self.does(name, lambda: real(*words, **options))
            if name == "open":
                self._held.append(done)
            return done

        return counted

    def open_file(self, path: Path, mode: str) -> io.BufferedWriter:
        """In place of `open`."""
        assert mode == "xb"
        disk = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                done: int = disk.does("write", lambda: super(Raw, self).write(data))
                return done

        made: io.BufferedWriter = self.does("open", lambda: io.BufferedWriter(Raw(path, "xb")))
        return made

    def let_go(self) -> None:
        """The system closes what a dead process had open."""
        for number in self._held:
            with suppress(OSError):
                os.close(number)


@contextmanager
def struck(disk: Disk) -> Iterator[Disk]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "os", disk)
        patch.setattr(holding, "os", disk)
        patch.setattr(writing, "open", disk.open_file, raising=False)
        try:
            yield disk
        finally:
            if disk._dead and not disk.full:
                disk.let_go()


def contents(folder: Path) -> dict[str, Any]:
    """Every file by name: its mode and what it says, but for what the wall clock said."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            value: Any = "folder"
        elif path.suffix == ".parquet":
            value = pq.read_table(path).to_pydict()
        elif path.suffix == ".json":
            value = _timeless(json.loads(path.read_text()))
        else:
            value = path.read_bytes()
        found[str(path.relative_to(folder))] = (oct(path.stat().st_mode), repr(value))  # in which NaN is NaN
    return found


def _timeless(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _timeless(v) for k, v in node.items() if k not in _OF_THE_WALL}
    return [_timeless(v) for v in node] if isinstance(node, list) else node
