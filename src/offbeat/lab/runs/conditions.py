"""The conditions under which a run computes: its cores, and what Ctrl-C does."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from offbeat.core.interruption import heeded, note
from offbeat.lab.watch import Watch


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def interruptible(watch: Watch) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP end the run at its next event; a second one, or one before the first, at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        note(number)
        if watch.interrupted or not watch.begun:
            raise KeyboardInterrupt
        watch.interrupted = True

    before = {s: signal.signal(s, stop) for s in heeded()}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
