"""Whose line it was: the user's own among the frames of an error."""

import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

import offbeat

Frame = tuple[str, int]
"""A file and a line."""

_OTHERS = (str(Path(offbeat.__file__).parent), *(sysconfig.get_path(n) for n in ("stdlib", "purelib", "platlib")))
_NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "not enough memory")


def told(error: BaseException) -> str:
    """An error in one line: what it was, and the user's line that led to it."""
    frames = [(f.filename, f.lineno or 0) for f in reversed(traceback.extract_tb(error.__traceback__))]
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        what = f"out of memory: {what}"
    return what + (f" ({where})" if (where := users_line(frames)) else "")


def users_line(frames: Iterable[Frame]) -> str | None:
    """Of frames, the innermost first: the first that is neither ours nor a library's, or else the first."""
    found = [frame for frame in frames if not frame[0].startswith("<frozen")]
    own = [frame for frame in found if not frame[0].startswith(_OTHERS)]
    for file, line in own or found:
        return f"{Path(file).name}, line {line}"
    return None


def crash_line(note: str) -> str | None:
    """The user's line in what `faulthandler` wrote when a process crashed; None if it wrote nothing."""
    return users_line((file, int(line)) for file, line in re.findall(r'File "(.*?)", line (\d+)', note))
