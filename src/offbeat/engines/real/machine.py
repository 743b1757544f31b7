"""What the machine and its kernel give: memory, open files, and processes that end with those who started them."""

import contextlib
import ctypes
import os
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

from offbeat.core.errors import ConfigError

_CGROUPS = Path("/sys/fs/cgroup")
_FILES_OF_A_WORKER = 2  # that the server holds for each: its line, and its process
_OTHER_FILES = 24


# -- memory and files -----------------------------------------------------------------------------------------------


def times_out_of_memory() -> int:
    """How often the kernel has killed a process, here or in our control group, because memory ran out."""
    files = [Path("/proc/vmstat"), *(g / n for g in _groups() for n in ("memory.events", "memory.oom_control"))]
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            total += sum(map(int, re.findall(r"^oom_kill (\d+)", file.read_text(), flags=re.MULTILINE)))
    return total


def _groups() -> Iterator[Path]:
    """The control groups of this process that may limit its memory, of both versions."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            yield from (_CGROUPS, _CGROUPS / path.lstrip("/"))
        elif "memory" in controllers.split(","):
            yield from (_CGROUPS / "memory", _CGROUPS / "memory" / path.lstrip("/"))


def check_files(workers: int) -> None:
    """Whether the server may hold as many open files as it has to."""
    needed, (_, allowed) = _FILES_OF_A_WORKER * workers + _OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise ConfigError(
            f"{workers} workers need about {needed} open files a process, but only {allowed} are allowed (ulimit -n): "
            "use fewer workers, or raise the limit"
        )


def allow_files() -> None:
    """As many open files as this process may ask for."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))


def keep_freed_memory() -> None:
    """What is freed stays with the process, up to a limit, instead of going back to the kernel.

    By default every training step gives its activations back and takes them again: 600 page faults a step of LeNet-5,
    a tenth of its time; and 24,000 for every vector of 100 MB, which is most of what a server does with it.
    """
    m_trim_threshold, m_mmap_threshold, m_mmap_max = -1, -3, -4
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if mallopt is not None:
        mallopt(m_mmap_threshold, 32 << 20)
        mallopt(m_trim_threshold, 512 << 20)
        # The threshold cannot be set beyond 32 MB: without maps, larger ones come from what is kept, too. In threads
        # beyond the first that takes MALLOC_ARENA_MAX=1 in the environment.
        mallopt(m_mmap_max, 0)


# -- processes ------------------------------------------------------------------------------------------------------


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """The kernel kills this process (or sends it this signal) when the one that started it ends, even by SIGKILL."""
    pr_set_pdeathsig = 1
    _prctl(pr_set_pdeathsig, number)


def adopt_orphans() -> None:
    """Whatever is started below this process and loses its parent becomes a child of this one."""
    pr_set_child_subreaper = 36
    _prctl(pr_set_child_subreaper, 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_children() -> None:
    """Ends all children of this process, and all that become its children thereby, until there are none.

    Nobody but us asks how a child of ours ended, so that no number can be another process's by then.
    """
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if int(parent) == os.getpid() and state not in "ZX":
                    found.append(int(entry.name))
    return found


def ignore_signals() -> None:
    """Ctrl-C, SIGTERM and SIGHUP may come to everybody at once, and are the parent's to handle.

    The last two are caught rather than ignored: a program that a model starts gets them as usual.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)


def heed_signals() -> None:
    """As usual again: for processes that a model forks."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
