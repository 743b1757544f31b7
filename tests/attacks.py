"""A hostile folder and a command: what may never happen, and how it is looked for."""

import argparse
import csv
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import typer

from hostile import COMMANDS, Kind, kinds, make_bases

_CODE = "from pathlib import Path\nPath({!r}).touch()\n"
_SECONDS = 200
_TOLD = 100
"""So many kinds between two lines of progress."""
_CHANGING = ("resume", "tag", "remove")
"""They get a folder of their own."""


class HangError(Exception):
    """A command that takes longer than any can."""


class Arena:
    """A place to stand in: the hostile folder, a whole run, files of others, and traps for whoever executes code."""

    def __init__(self, place: Path, make: Callable[[Path], object] = make_bases) -> None:
        self.place = place
        self.bases = place / "bases"
        self.bases.mkdir(parents=True)
        make(self.bases)
        self.work = place / "work"

    def set_up(self, kind: Kind) -> Path:
        """The folder, as the kind has it."""
        self._clean()
        self.work.mkdir()
        (self.work / "out").mkdir()
        (self.work / "outside").mkdir()
        (self.work / "outside" / "file").write_text("mine")
        (self.work / "outside" / "000000.safetensors").write_text("mine")
        (self.work / "hostile_code.py").write_text(_CODE.format(str(self.work / "EXECUTED")))
        shutil.copytree(self.bases / "finished", self.work / "whole")
        folder = self.work / kind.folder
        shutil.copytree(self.bases / kind.base, folder)
        (folder / "notes.txt").write_text("mine")
        kind.change(folder)
        return folder

    def _clean(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def state(self, *names: str) -> dict[str, Any]:
        """Every file below these folders: its kind, its size, and when it was changed."""
        found: dict[str, Any] = {}
        for name in names:
            for top, folders, files in os.walk(self.work / name):
                for path in (os.path.join(top, n) for n in (*folders, *files)):
                    about = os.lstat(path)
                    found[path] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino)
        return found


def attack(
    arena: Arena, kind: Kind, names: Iterable[str], commands: Mapping[str, tuple[str, ...]] = COMMANDS
) -> Iterator[str]:
    """What went wrong, one line each."""
    fresh = False
    for name in names:
        if not fresh or name in _CHANGING:
            folder = arena.set_up(kind)
        fresh = name not in _CHANGING
        before = arena.state("outside", "whole")
        said = [f"{kind.name} / {name}: {wrong}" for wrong in _one(arena, folder, commands[name])]
        if arena.state("outside", "whole") != before:
            said.append(f"{kind.name} / {name}: something outside was changed")
        if (folder / "notes.txt").read_text() != "mine":
            said.append(f"{kind.name} / {name}: a file of somebody else's was changed")
        if list(arena.work.rglob("EXECUTED")):
            said.append(f"{kind.name} / {name}: code was executed")
        yield from said


def _one(arena: Arena, folder: Path, command: tuple[str, ...]) -> Iterator[str]:
    words = [w.format(run=folder.name if not folder.name.startswith("-") else f"./{folder.name}") for w in command]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _standing(arena.work), _at_most(_SECONDS), redirect_stdout(out), redirect_stderr(err):
            code = _run(words)
    except HangError:
        yield "hangs"
        return
    except BaseException as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        yield f"{type(e).__name__}: {str(e)[:100]!r} at {Path(where.filename).name}:{where.lineno}"
        return
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    if code not in (0, 1, 2, 3):
        yield f"exit code {code!r}"
    lines = [line for line in said.splitlines() if line.startswith("offbeat: ") and "left out" not in line]
    if code == 2 and len(lines) != 1:
        yield f"{len(lines)} lines: {said[:200]!r}"
    if "Traceback" in said:
        yield "a traceback"
    if any(not c.isprintable() and c != "\n" for c in printed + said):
        yield f"control characters: {(printed + said)[:200]!r}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    if grown > 1.5e6:
        yield f"{grown / 1e6:.1f} GB of memory"
    yield from _written(arena.work / "out")


def _run(words: list[str]) -> Any:
    from offbeat import cli

    argv, app = sys.argv, cli.app
    sys.argv, cli.app = ["offbeat", *words], _commands(app)
    try:
        cli.main()
    except SystemExit as e:
        return e.code
    finally:
        sys.argv, cli.app = argv, app


@cache
def _commands(app: Any) -> Any:
    """Built once: typer would build all of them for every call, which takes longer than most calls."""
    return typer.main.get_command(app)


def _written(out: Path) -> Iterator[str]:
    """No markup in pages, no formula in tables."""
    for page in out.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "[bold]<b>" in text or "\x1b" in text:
            yield "markup in the page"
    for file in out.rglob("*.csv"):
        with open(file, encoding="utf-8", newline="") as f:
            for cell in (cell for row in csv.reader(f) for cell in row):
                if cell[:1] in ("=", "@", "\t", "\r") or (cell[:1] in ("+", "-") and "cmd" in cell) or "\x1b" in cell:
                    yield f"a formula in {file.name}: {cell[:30]!r}"


@contextmanager
def _standing(place: Path) -> Iterator[None]:
    """In that folder, with nothing left of it in Python's path afterwards."""
    here, path = os.getcwd(), list(sys.path)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(here)
        sys.path[:] = path
        sys.modules.pop("hostile_code", None)


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def ring(number: int, frame: Any) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """All kinds with all commands, or those that are asked for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--every", type=int, default=1, help="only every so manieth kind")
    parser.add_argument("--only", default="", help="only kinds whose name holds this")
    parser.add_argument("--commands", default="", help="only these commands, with commas between")
    parser.add_argument("--lot", type=int, help="in an order by lot of this number, to stop anywhere")
    parser.add_argument("--shard", default="0/1", help="K/N: the kinds of this shard of so many")
    chosen = parser.parse_args()
    names = chosen.commands.split(",") if chosen.commands else list(COMMANDS)
    began = time.monotonic()
    spent: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_STATE_HOME"] = str(Path(place) / "state")
        arena = Arena(Path(place) / "arena")
        every = [k for k in kinds(arena.bases) if chosen.only in k.name][:: chosen.every]
        if chosen.lot is not None:
            random.Random(chosen.lot).shuffle(every)
        first, shards = map(int, chosen.shard.split("/"))
        every = every[first::shards]
        wrong = []
        for number, kind in enumerate(every):
            if number % _TOLD == 0:
                print(
                    f"{number} of {len(every)} kinds, {len(wrong)} wrong, {time.monotonic() - began:.0f} s", flush=True
                )
            start = time.monotonic()
            for line in attack(arena, kind, names):
                wrong.append(line)
                print(line, flush=True)
            spent[kind.name] += time.monotonic() - start
        arena._clean()
    for name, seconds in spent.most_common(5):
        print(f"{seconds:6.1f} s  {name}")
    print(f"{len(every)} kinds x {len(names)} commands: {len(wrong)} wrong, in {time.monotonic() - began:.0f} s")
    return bool(wrong)
