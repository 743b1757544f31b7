"""What a worker does with a cell, wherever it is: makes the run's plan, runs it, says what came of it."""

import base64
import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from offbeat.core.errors import OffbeatError
from offbeat.lab.config import NONE, Objects
from offbeat.lab.runs.execute import execute
from offbeat.lab.studies.cells import Cell
from offbeat.lab.watch import Watch

_SHOW = 0.5  # seconds between two words of how much is done
_LONG = 1.0  # seconds: a cell of so long may have held much


class CellWork:
    """One cell after another. Objects that were sent with one are kept for the next."""

    def __init__(self, say: Callable[[Mapping[str, Any]], None], threads: int = 0) -> None:
        """`threads` compute a cell; 0: the caller's alone, since the cores are shared among the cells."""
        self._say, self._threads = say, threads
        self._objects = NONE
        self._last = 0.0
        self.interrupted = False
        """Set by whoever cannot send a signal."""

    def do(self, job: Mapping[str, Any], folder: Path | None = None) -> Mapping[str, Any]:
        """The outcome; whatever goes wrong is one, too. `folder`: where the run is kept, if not where the job says.

        A run is full of cycles, and Python looks for them by the number of objects: a few of them hold a whole dataset.
        """
        begun = time.monotonic()
        outcome = self._do(job, folder)
        if time.monotonic() - begun >= _LONG:
            gc.collect()
        return outcome

    def _do(self, job: Mapping[str, Any], folder: Path | None) -> Mapping[str, Any]:
        place = folder or Path(job["folder"])
        try:
            if "objects" in job:
                self._objects = _unpickled(job["objects"])
            plan = Cell(job["config"], place, address=job["address"], objects=self._objects).plan()
            run = execute(plan, place, pool=self._threads, again=job["again"], progress=self._show)
        except OffbeatError as e:
            return {"status": "failed", "why": str(e).replace(str(place), job["folder"])}
        except KeyboardInterrupt:
            return {"status": "interrupted", "why": "interrupted"}
        except Exception as e:
            return {"status": "failed", "why": f"{type(e).__name__}: {e}".splitlines()[0]}
        return {**run.summary, "run": job["folder"]}

    def _show(self, watch: Watch) -> None:
        if self.interrupted:
            watch.interrupted = True
        if time.monotonic() - self._last > _SHOW:
            self._last = time.monotonic()
            self._say({"share": watch.share})


def _unpickled(text: str) -> Objects:
    """What our own parent sent."""
    import cloudpickle

    found: Objects = cloudpickle.loads(base64.b64decode(text))
    return found
