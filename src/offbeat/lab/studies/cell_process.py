"""The worker process of `cells_here.py`: one cell after another, as its parent says."""

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from offbeat.lab.studies.cell_work import CellWork


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

    try:
        threading.Thread(target=listen, daemon=True).start()
    except RuntimeError:
        say({"status": "failed", "why": "its process cannot start a thread: more processes, ulimit -u?"})
        return
    work = CellWork(say)
    while (job := jobs.get()) is not None:
        busy.set()
        say(work.do(job))
        busy.clear()


def main() -> None:
    """The process itself. What a model prints must not get between the lines."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        _worker(sys.stdin, out)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
