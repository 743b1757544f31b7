"""A machine that gives a command too little: address space, memory, threads, open files. One line, and which limit."""

import errno
import re
import resource
import sys
import threading

from offbeat.core.errors import ConfigError
from offbeat.core.legible import legible
from offbeat.core.units import format_size

_TO_LOAD = 2_000_000_000
"""Bytes of address space below which torch and pyarrow may be ended by their own libraries, without a word of ours."""
_LIGHT = {"runs", "list", "config", "cite", "data", "scale"}
"""Commands that load neither."""
_NO_MEMORY = re.compile("failed to map segment|cannot allocate memory|can't allocate memory", re.IGNORECASE)
_NO_THREAD = re.compile("can't start new thread|Resource temporarily unavailable")


def check_address_space(command: str | None) -> None:
    """Said before anything is loaded: a library that cannot get memory ends the process."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if command not in _LIGHT and allowed != resource.RLIM_INFINITY and allowed < _TO_LOAD:
        raise ConfigError(
            f"{command} needs about {format_size(_TO_LOAD)} of address space, but only {format_size(allowed)} are "
            "allowed (ulimit -v): raise the limit"
        )


def starved(error: BaseException) -> str | None:
    """What there was too little of, in one line; None where it is another error."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM or _NO_MEMORY.search(str(error)):
        return _line("there is not enough memory", error, resource.RLIMIT_AS, "-v")
    if number in (errno.EMFILE, errno.ENFILE):
        return _line("too many files are open", error, resource.RLIMIT_NOFILE, "-n")
    if number == errno.EAGAIN or _NO_THREAD.search(str(error)):
        return _line("no more threads or processes can be started", error, resource.RLIMIT_NPROC, "-u")
    return None


def threads_say_one_line() -> None:
    """A thread, ours or a library's, that dies for want of something says so; of another error, all there is to say."""
    if threading.excepthook is threading.__excepthook__:  # else somebody else looks after them
        threading.excepthook = _say_of_thread


def _say_of_thread(args: threading.ExceptHookArgs) -> None:
    too_little = None if args.exc_value is None else starved(args.exc_value)
    if too_little is None:
        threading.__excepthook__(args)
    else:
        name = "a thread" if args.thread is None else f"the thread {args.thread.name}"
        print(f"offbeat: {legible(name)} has ended: {legible(too_little)}", file=sys.stderr)


def _line(what: str, error: BaseException, limit: int, letter: str) -> str:
    """With what the error says, and the limit where there is one."""
    said = str(error).strip().splitlines()
    allowed, _ = resource.getrlimit(limit)
    bound = ""
    if allowed != resource.RLIM_INFINITY:
        bound = f" (ulimit {letter} allows {format_size(allowed) if limit == resource.RLIMIT_AS else allowed})"
    return f"{what}{bound}{': ' + said[0][:200] if said else ''}"
