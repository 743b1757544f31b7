"""The worker process of `cells.py`: one run after another, as its parent says."""

import base64
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from offbeat.core.errors import OffbeatError
from offbeat.lab.config import NONE, Objects
from offbeat.lab.runs.execute import execute
from offbeat.lab.studies.cells import Cell
from offbeat.lab.watch import Watch


def _worker(lines: IO[str], out: IO[str]) -> None:
    jobs: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
    busy = threading.Event()

    def listen() -> None:
        for line in lines:
            jobs.put(json.loads(line))
        if busy.is_set():
            os._exit(1)  # the parent is gone: nobody waits for this result
        jobs.put(None)

    def say(message: Mapping[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    last = 0.0

    def progress(watch: Watch) -> None:
        nonlocal last
        if time.monotonic() - last > 0.5:
            last = time.monotonic()
            say({"share": watch.share})

    threading.Thread(target=listen, daemon=True).start()
    objects = NONE
    while (job := jobs.get()) is not None:
        busy.set()
        try:
            if "objects" in job:
                objects = _unpickled(job["objects"])
            plan = Cell(job["config"], Path(job["folder"]), address=job["address"], objects=objects).plan()
            # One thread a cell: the cores are shared among the cells.
            run = execute(plan, Path(job["folder"]), pool=0, again=job["again"], progress=progress)
            say(run.summary)
        except OffbeatError as e:
            say({"status": "failed", "why": str(e)})
        except KeyboardInterrupt:
            say({"status": "interrupted", "why": "interrupted"})
        except Exception as e:
            say({"status": "failed", "why": f"{type(e).__name__}: {e}".splitlines()[0]})
        busy.clear()


def _unpickled(text: str) -> Objects:
    """What our own parent sent."""
    import cloudpickle

    found: Objects = cloudpickle.loads(base64.b64decode(text))
    return found


def main() -> None:
    """The process itself. What a model prints must not get between the lines."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        _worker(sys.stdin, out)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
