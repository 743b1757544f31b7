"""The actor of `cells_on_ray.py`: computes cells on whatever machine Ray has put it."""

import os
import queue
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from offbeat.engines.ray.host import About, about_here
from offbeat.folders.copies import Change, apply, changes
from offbeat.lab.studies.cell_work import CellWork

_PREFIX = "offbeat-cell-"
_WAIT = 1.0  # seconds that a question for news is kept waiting


class CellHost:
    """One cell at a time, in a folder of its own."""

    def __init__(self, threads: int) -> None:
        self._news: queue.Queue[Any] = queue.Queue()
        self._work = CellWork(self._news.put, 0 if threads < 2 else threads)
        _sweep()

    def prepare(self, paths: list[str]) -> About:
        """Modules are looked for where the driver has them, too."""
        sys.path += [p for p in paths if p not in sys.path and os.path.isdir(p)]
        return about_here()

    def work(self, job: Mapping[str, Any], there: bytes) -> None:
        """Begins, or goes on from what is there. Every change of the folder is news, and so is the outcome."""
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        try:
            for change in msgspec.msgpack.decode(there, type=list[Change]):
                apply(folder, change)
            with changes(folder, lambda change: self._news.put(msgspec.msgpack.encode(change))):
                outcome = self._work.do(job, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._news.put(outcome)

    def news(self) -> list[Any]:
        """What there is to tell, in order."""
        found: list[Any] = []
        with suppress(queue.Empty):
            found.append(self._news.get(timeout=_WAIT))
            while True:
                found.append(self._news.get_nowait())
        return found

    def interrupt(self) -> None:
        self._work.interrupted = True


def _sweep() -> None:
    """Deletes what a killed worker of ours has left on this machine."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        found = re.fullmatch(rf"{_PREFIX}(\d+)-\w+", path.name)
        if found and not Path(f"/proc/{found[1]}").exists() and path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
