"""The three streams that a command is started with, which may be closed, full, or gone on the way."""

import errno
import os
import sys

_OUTPUT_FAILED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def open_closed_streams() -> None:
    """What was closed (`2>&-`) leads nowhere: otherwise the next file to be opened would take its place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def lead_nowhere(stream: int) -> None:
    """What is still to be written there is forgotten."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def is_output(error: OSError) -> bool:
    """Whether it is what we print that could not be written, rather than a file."""
    return error.filename is None and error.errno in _OUTPUT_FAILED
