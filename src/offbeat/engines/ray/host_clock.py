"""Clocks of different machines: how far another one's is from ours, and how well that is known."""

from functools import cache
from pathlib import Path
from socket import gethostname


@cache
def kernel_id() -> str:
    """The same for all processes that share a monotonic clock: those of one running kernel."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return gethostname()


class Alignment:
    """Our monotonic clock minus the server's, from questions and answers (Cristian's method).

    The answer was given between question and arrival; taking the middle is wrong by at most half the time it all took,
    so the quickest answer tells most.
    """

    def __init__(self) -> None:
        self.offset_ns = 0
        self.error_ns = 0
        self._learned = False

    def learn(self, asked_ns: int, answer_ns: int, arrived_ns: int) -> None:
        error = (arrived_ns - asked_ns + 1) // 2
        if not self._learned or error < self.error_ns:
            self._learned = True
            self.offset_ns, self.error_ns = (asked_ns + arrived_ns) // 2 - answer_ns, error
