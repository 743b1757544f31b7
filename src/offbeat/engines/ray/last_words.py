"""How a process of Ray's ended, from what is left of it: the end of its error log, and Ray's own words.

Ray does not pass on by which signal. Python's note of a crash is in the log, where Ray sends what a process complains
of; an exit code is in the words; and where there is neither, somebody killed it, or it left without a word.
"""

import os
import re
from pathlib import Path

from offbeat.engines.real.blame import crash_line

_TAIL = 65536
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
}
_CRASH = re.compile(rf"Fatal Python error: ({'|'.join(_SIGNALS)})")
_CODE = re.compile(r"exit code (-?\d+)")
_NO_MEMORY = re.compile(r"running low on memory|OUT_OF_MEMORY")


def error_log() -> str:
    """Where the complaints of this process go; nothing if that is no file."""
    try:
        path = os.readlink("/proc/self/fd/2")
    except OSError:
        return ""
    return path if Path(path).is_file() else ""


def end_of(path: str) -> str:
    """The last that a log says; nothing where it cannot be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read(_TAIL).decode(errors="replace")
    except OSError:
        return ""


def how_it_ended(log: str, words: str, out_of_memory: bool = False) -> str:
    """In the words of the other engines: a signal and the user's line, an exit code, or what can be told."""
    if crashes := list(_CRASH.finditer(log)):
        where = crash_line(log[crashes[-1].start() :])
        return _SIGNALS[crashes[-1][1]] + (f" in {where}" if where else "")
    if code := _CODE.search(words):
        return f"exit code {code[1]}"
    if out_of_memory or _NO_MEMORY.search(words):
        return "killed, out of memory"
    return "killed, or left without a word"
