"""Cells on the machines of a Ray cluster: an actor takes one after another, with a number of CPUs set aside for it.

The machines need no folder in common. A cell is computed in a folder of its machine's own, and every change of that
folder is made here as well, in the same order (`folders/copies.py`): so the store is the one that it would be without
Ray, and a cell that was interrupted, killed or lost with its machine goes on from its last checkpoint, anywhere.
"""

import contextlib
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.engines.ray.connection import Connection, is_there, require_ray
from offbeat.folders.copies import Change, apply, contents
from offbeat.lab.config import NONE, Objects
from offbeat.lab.runs.folder import Folder
from offbeat.lab.runs.trust import signed_here
from offbeat.lab.studies.cells import Cell, CellWorker, Fate, Inbox, job

_PLACE_SECONDS = 300.0  # for the first worker to find a place and start
_COUNT_SECONDS = 5.0  # between two looks at how large the cluster is


@dataclass(frozen=True)
class RayPortion:
    """Where, in words: which cluster, and how much of it a cell gets.

    Args:
        address: of a running cluster (`host:port`, or "auto"); None starts a Ray on this machine, for these cells.
        cpus: set aside for each cell, whose gradients are then computed by as many threads.
        most: cells side by side; None: as many as there is room for.
    """

    address: str | None = None
    cpus: float = 1.0
    most: int | None = None


class RayPlace:
    """A `Place`: the machines of a cluster, as many as there are at the time."""

    def __init__(self, where: RayPortion, cores: int) -> None:
        require_ray()
        self._where = where
        self._connection = Connection(where.address, (where.most or cores) * where.cpus)
        self._counted = 0.0
        self._room = 0
        self._first = True
        try:
            self._check_room()
        except BaseException:
            self._connection.close()
            raise

    def _check_room(self) -> None:
        import ray

        machines = [n for n in ray.nodes() if n["Alive"]]
        largest = max(n["Resources"].get("CPU", 0.0) for n in machines)
        if largest < self._where.cpus:
            raise ConfigError(
                f"a cell asks for {self._where.cpus:g} CPUs, and no machine of the Ray cluster has more than "
                f"{largest:g}: use a smaller --cpus"
            )

    def room(self) -> int:
        import ray

        if time.monotonic() - self._counted > _COUNT_SECONDS:
            self._counted = time.monotonic()
            each = [n["Resources"].get("CPU", 0.0) // self._where.cpus for n in ray.nodes() if n["Alive"]]
            self._room = int(sum(each))
        return self._room if self._where.most is None else min(self._room, self._where.most)

    def start(self, inbox: Inbox) -> CellWorker:
        """The first must find a place in time; later ones come when there is one."""
        limit, self._first = (_PLACE_SECONDS if self._first else None), False
        return _Actor(inbox, self._where.cpus, limit)

    def close(self) -> None:
        self._connection.close()


class _Actor:
    """One actor and what it is doing. A thread listens to it."""

    def __init__(self, inbox: Inbox, cpus: float, limit: float | None) -> None:
        import ray

        from offbeat.lab.studies.cell_host import CellHost

        self.cell: Cell | None = None
        self._told: Objects = NONE
        self._folder: Folder | None = None
        self._node = ""
        self._inbox = inbox
        actor = ray.remote(concurrency_groups={"run": 1, "news": 1})(CellHost)
        self._actor: Any = actor.options(num_cpus=cpus, scheduling_strategy="SPREAD", max_restarts=0).remote(int(cpus))
        threading.Thread(target=self._listen, args=(limit,), daemon=True).start()

    def give(self, cell: Cell, again: bool) -> None:
        self.cell = cell
        message, self._told = job(cell, again, self._told), cell.objects
        folder = Folder(cell.folder)
        try:
            folder.acquire()
            self._folder = folder
            there = contents(cell.folder)
        except OffbeatError as e:
            self._inbox.put((self, {"status": "failed", "why": str(e)}))
            return
        self._actor.work.options(concurrency_group="run").remote(message, msgspec.msgpack.encode(there))

    def _listen(self, limit: float | None) -> None:
        """Until it is gone. Its folder is changed here before its outcome is told."""
        import ray

        from offbeat.engines.ray.crew import check_versions

        try:
            about = ray.get(self._actor.prepare.remote([str(Path(p).resolve()) for p in sys.path]), timeout=limit)
            self._node = about.node
            check_versions(about)
            self._inbox.put((self, {"ready": True}))
            while True:
                for message in ray.get(self._actor.news.options(concurrency_group="news").remote()):
                    self._hear(message)
        except ray.exceptions.GetTimeoutError:
            self._inbox.put(
                (self, ConfigError(f"Ray started no process for a cell within {limit:.0f} s: others use it"))
            )
        except ray.exceptions.RayError:
            self._release()
            self._inbox.put((self, None))
        except OffbeatError as e:
            self._inbox.put((self, e))

    def _hear(self, message: Any) -> None:
        if isinstance(message, bytes):
            if self._folder is not None and self.cell is not None:
                change = msgspec.msgpack.decode(message, type=Change)
                if change.name == "run.json" and change.data is not None:
                    change.data = signed_here(change.data, self.cell.config)
                apply(self._folder.path, change)
            return
        if "share" not in message:
            self._release()
        self._inbox.put((self, message))

    def _release(self) -> None:
        if self._folder is not None:
            self._folder.release()
        self._folder = None

    def fate(self) -> Fate:
        if self._node and not is_there(self._node):
            return Fate(f"its machine {self._node} was lost", blameless=True)
        return Fate(f"its process on machine {self._node} ended")

    def interrupt(self) -> None:
        self._actor.interrupt.remote()

    def end(self, *, hard: bool = False) -> None:
        import ray

        with contextlib.suppress(Exception):  # also when Ray itself is gone
            ray.kill(self._actor)
        self._release()
