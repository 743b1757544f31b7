"""Ctrl-C, SIGTERM and SIGHUP mean the same: save, say so in one line, and end with the exit code that shells expect."""

import signal
from typing import Any

_last: list[int] = [signal.SIGINT]


def heeded() -> list[signal.Signals]:
    """All of them; but not SIGHUP where nohup wants it ignored."""
    hung_up = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    return [signal.SIGINT, signal.SIGTERM, *hung_up]


def note(number: int) -> None:
    """This one has come."""
    _last[0] = number


def exit_code() -> int:
    """That of a process which ended because of the last one: 130, 143 or 129."""
    return 128 + _last[0]


def like_ctrl_c() -> None:
    """From now on all of them are KeyboardInterrupt."""

    def interrupt(number: int, frame: Any) -> None:
        note(number)
        raise KeyboardInterrupt

    for s in heeded():
        signal.signal(s, interrupt)
