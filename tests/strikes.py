"""A disk that fails, or a process that dies, at any one file operation of a run.

A kill is played in this process: from that operation on nothing reaches the disk any more, whatever is still cleaned up
on the way out. What Python had not written yet is lost, as it is in a real one. A `deed` may do something else instead,
such as to kill the process for good.

An operation has a kind, `replace checkpoint.safetensors`: what is done, and to which file, without its number. A
simulation does the same operations every time, and is struck at one by its number; how many of a kind a real run does
is up to chance, and it is struck at a kind, the so manieth time.
"""

import errno
import io
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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


@dataclass(frozen=True)
class At:
    """A kind of operation, and which time, from 0."""

    kind: str
    time: int = 0


@dataclass
class Disk:
    """Strikes at operation `at`, before or after it; `full` makes it a full disk, for good or for once."""

    at: int | At | None = None
    after: bool = False
    full: bool = False
    for_good: bool = True
    deed: Callable[[], object] | None = None
    """What happens instead of a kill; the run goes on, if it can."""
    seen: list[str] = field(default_factory=list)
    """The kinds of all operations, in order."""
    done: bool = False
    """Whether it has struck."""
    _dead: bool = False
    _held: list[int] = field(default_factory=list)

    def does(self, name: str, place: str | int | Path, operation: Callable[[], Any]) -> Any:
        if self._dead:
            self._strike(name)
        kind = f"{name} {_called(place)}"
        struck = self.at == (At(kind, self.seen.count(kind)) if isinstance(self.at, At) else len(self.seen))
        self.seen.append(kind)
        if struck and not self.after:
            self._strike(name)
        try:
            return operation()
        finally:
            if struck and self.after:
                self._strike(name)

    def _strike(self, name: str) -> None:
        self.done = True
        if self.deed is not None:
            self.deed()
            return
        if not self.full:
            self._dead = True
            raise KilledError
        self._dead = self.for_good
        if name in _TAKES_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        """In place of the module `os`."""
        real = getattr(os, name)
        if name == "close":
            return self._close
        if name not in _OPERATIONS:
            return real

        def counted(*words: Any, **options: Any) -> Any:
            done = self.does(name, words[-1] if name == "replace" else words[0], lambda: real(*words, **options))
            if name == "open":
                self._held.append(done)
            return done

        return counted

    def _close(self, number: int) -> None:
        """Its number may be another file's, or a socket's, from now on."""
        os.close(number)
        self._held.remove(number)

    def open_file(self, path: Path, mode: str) -> io.BufferedWriter:
        """In place of `open`."""
        assert mode == "xb"
        disk = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                done: int = disk.does("write", path, lambda: super(Raw, self).write(data))
                return done

        made: io.BufferedWriter = self.does("open", path, lambda: io.BufferedWriter(Raw(path, "xb")))
        return made

    def let_go(self) -> None:
        """The system closes what a dead process had open."""
        for number in self._held:
            with suppress(OSError):
                os.close(number)


def _called(place: str | int | Path) -> str:
    """A file or folder by its name, without numbers: those of parts, of snapshots, of the process that writes."""
    path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else place
    return re.sub(r"\d+", "#", Path(path).name)


def dealt(kinds: Sequence[str], player: int, players: int, lot: int) -> list[str]:
    """Everybody's share of all kinds, so that each is dealt to somebody; the lot says to whom."""
    cards = sorted(kinds)
    random.Random(lot).shuffle(cards)
    return cards[player::players]


def drawn(seen: Sequence[str], kinds: Sequence[str], key: object) -> list[tuple[At, bool]]:
    """One operation of each of these kinds, by lot of the key, and whether before or after it."""
    draw, counts = random.Random(str(key)), Counter(seen)
    return [(At(kind, draw.randrange(counts[kind])), draw.random() < 0.5) for kind in kinds]


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


def differences(found: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    """In which files two folders differ, a short line each: a failure need not print both."""
    told = [f"{name} is missing" for name in sorted(whole.keys() - found.keys())]
    told += [f"{name} should not be there" for name in sorted(found.keys() - whole.keys())]
    for name in sorted(found.keys() & whole.keys()):
        (mode, value), (expected, other) = found[name], whole[name]
        if mode != expected:
            told.append(f"{name} has the mode {mode}, not {expected}")
        if value != other:
            alike = next((k for k, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), 0)
            at = max(0, alike - 30)
            told.append(f"{name} says {value[at : at + 60]}, not {other[at : at + 60]}")
    return told


def _timeless(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _timeless(v) for k, v in node.items() if k not in _OF_THE_WALL}
    return [_timeless(v) for v in node] if isinstance(node, list) else node
