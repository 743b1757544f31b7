"""What the slots are given and give back, and those that several methods share."""

from collections.abc import Callable, Iterable
from typing import Any

from offbeat.core.effects import Gradient, View
from offbeat.solvers.parameter_server.state import S, Server, W


class Arrival:
    """A gradient at the server's door: from which worker, and its staleness tau."""

    __slots__ = ("gradient", "refused", "tau", "worker")

    def __init__(self, worker: int, gradient: Gradient, tau: int | None) -> None:
        assert tau is not None, "a parameter server's gradients have versions"
        self.worker, self.gradient, self.tau = worker, gradient, tau
        self.refused = False


Pushed = Callable[[W, Any], Any]
"""(worker's state, g) -> what it pushes; what it keeps for the next time, it keeps in its state."""
Gate = Callable[[S, Arrival], bool]
"""(server's state, arrival) -> whether the gradient is used at all."""
Correct = Callable[[S, Arrival], tuple[Any, float]]
"""(server's state, arrival) -> the direction of the step, and a factor of the learning rate."""
Collect = Callable[[S], int]
"""(server's state) -> how many of the held, oldest first, go into a step now; 0: none."""
Release = Callable[[S, Arrival, bool], Iterable[int]]
"""(server's state, arrival, whether there was a step) -> the workers that are answered now."""
Publish = Callable[[S, int], View]
"""(server's state, worker) -> what this worker is sent."""


def fresh(s: Server, arrival: Arrival) -> bool:
    """Gate: only gradients of the current version."""
    return arrival.tau == 0


def everybody(s: Server) -> int:
    """Collect: all that are held, once every live worker has delivered."""
    if len(s.held) < len(s.live):  # no need to look who
        return 0
    return len(s.held) if s.live <= {h.worker for h in s.held} else 0


def wait(s: Server, arrival: Arrival, stepping: bool) -> list[int]:
    """Release: nobody is answered before the step, then everybody who waits, in worker order."""
    if arrival.refused:
        return [arrival.worker]
    s.waiting.add(arrival.worker)
    if not stepping:
        return []
    released = sorted(s.waiting)
    s.waiting.clear()
    return released
