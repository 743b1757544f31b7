"""Many runs side by side: worker processes that take one configuration after another. A crash costs one cell.

The parent speaks JSON lines over pipes to `python -m offbeat.lab.studies.cells`; nothing is pickled, nothing listens.
A worker whose parent is gone sees its input end and stops; what it had checkpointed stays.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from offbeat.core.errors import OffbeatError

_POLL = 0.5


@dataclass
class Cell:
    """One run of many: its configuration, its folder and, at the end, its outcome."""

    config: dict[str, Any]
    folder: Path
    keys: dict[str, Any] = field(default_factory=dict)
    """The values that set this cell apart."""
    outcome: dict[str, Any] | None = None
    share: float = 0.0
    """How much of it is done."""


class _Process:
    """One worker process and what it is doing."""

    def __init__(self, inbox: "queue.Queue[tuple[_Process, dict[str, Any] | None]]") -> None:
        self.cell: Cell | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "offbeat.lab.studies.cells"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a terminal sends Ctrl-C to its whole group; here the parent passes it on, once
        )
        threading.Thread(target=self._listen, args=(inbox,), daemon=True).start()

    def _listen(self, inbox: "queue.Queue[tuple[_Process, dict[str, Any] | None]]") -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            inbox.put((self, json.loads(line)))
        inbox.put((self, None))

    def give(self, cell: Cell, **options: Any) -> None:
        self.cell = cell
        message = {"config": cell.config, "folder": str(cell.folder), **options}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def exit_code(self) -> int | None:
        try:
            return self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return None

    def end(self, *, hard: bool = False) -> None:
        if hard:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and (hard or pipe is self._process.stdin):
                pipe.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def run_cells(
    cells: Sequence[Cell],
    processes: int,
    *,
    again: bool = False,
    on_change: Callable[[], None] = lambda: None,
) -> bool:
    """Runs every cell; outcomes are put into them. False when interrupted: what is done is kept."""
    waiting = [c for c in cells if c.outcome is None][::-1]
    inbox: queue.Queue[tuple[_Process, dict[str, Any] | None]] = queue.Queue()
    workers: list[_Process] = []
    interrupted = False
    try:
        workers += [_start(waiting, inbox, again) for _ in range(min(processes, len(waiting)))]
        while any(w.cell is not None for w in workers):
            try:
                for worker, message in _messages(inbox):
                    _receive(worker, message, workers, waiting, inbox, again)
                on_change()
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                waiting.clear()
                for w in workers:
                    w.interrupt()
    except BaseException:
        for w in workers:
            w.end(hard=True)
        raise
    for w in workers:
        w.end()
    return not interrupted


def _messages(inbox: "queue.Queue[Any]") -> Iterator[tuple[_Process, dict[str, Any] | None]]:
    try:
        yield inbox.get(timeout=_POLL)
        while True:
            yield inbox.get_nowait()
    except queue.Empty:
        return


def _start(waiting: list[Cell], inbox: "queue.Queue[Any]", again: bool) -> _Process:
    worker = _Process(inbox)
    worker.give(waiting.pop(), again=again)
    return worker


def _receive(
    worker: _Process,
    message: dict[str, Any] | None,
    workers: list[_Process],
    waiting: list[Cell],
    inbox: "queue.Queue[Any]",
    again: bool,
) -> None:
    cell = worker.cell
    if message is None:  # the process is gone
        workers.remove(worker)
        if cell is not None:
            code = worker.exit_code()
            cell.outcome = {"status": "failed", "why": f"its process ended with exit code {code}"}
            cell.share = 1.0
            worker.cell = None
        worker.end()
        if waiting:
            workers.append(_start(waiting, inbox, again))
        return
    assert cell is not None
    if "share" in message:
        cell.share = message["share"]
        return
    cell.outcome, cell.share, worker.cell = message, 1.0, None
    if waiting:
        worker.give(waiting.pop(), again=again)


# -- the worker process -----------------------------------------------------------------------------------------------


def _worker(lines: IO[str], out: IO[str]) -> None:
    from offbeat.lab.config import make
    from offbeat.lab.runs.execute import execute
    from offbeat.lab.runs.plan import build
    from offbeat.lab.watch import Watch

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
    while (job := jobs.get()) is not None:
        busy.set()
        try:
            plan = build(make(job["config"]))
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


if __name__ == "__main__":
    try:
        _worker(sys.stdin, sys.stdout)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
