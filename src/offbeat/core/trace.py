"""The trace: one row a gradient, who read which version when, and when it was applied. Every number comes from it."""

from typing import NamedTuple

# How a gradient ended. Only the first two count as processed samples. Where every worker applies every gradient to a
# replica of its own, it is "applied" at the worker that computed it and "received", without samples, at all others.
APPLIED, REFUSED, LOST, CANCELLED, IN_FLIGHT = "applied", "refused", "lost", "cancelled", "in flight"
RECEIVED = "received"


class Row(NamedTuple):
    """One gradient. Times are virtual in `sim` and wall time elsewhere, never both in one trace."""

    time: float  # when it was applied, or otherwise ended
    worker: int
    source: int  # whose data
    draw: int  # which mini-batch of that source
    version_read: int | None
    version_applied: int | None  # server's version when it ended, not counting itself
    staleness: int | None
    gap: float | None  # |x now - x read|
    applied: bool
    outcome: str
    loss: float | None
    samples: int
    started: float  # the worker began to compute
    computed: float  # the worker had finished
    grad_norm: float | None
    correct: int | None  # samples of the batch that were classified right


def staleness(version_applied: int | None, version_read: int | None) -> int | None:
    """tau = updates applied between reading and applying, not counting itself. Defined here and nowhere else."""
    if version_applied is None or version_read is None:
        return None
    return version_applied - version_read
