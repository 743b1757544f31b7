"""Computing while a message is under way: what it makes of a worker's round, and who allows it.

    worker:  push(g), and meanwhile g' = grad(x_read);  x_read <- the answer;  g <- g'

So each gradient is taken at the x before the last answer. With one worker that is SGD with a constant delay of 1; with
W workers the mean staleness is 2 W - 1 instead of W - 1. It is another rule with more staleness, so a method has to
say that it allows it, and somebody has to ask for it.
"""

from collections.abc import Iterable
from typing import Any

from offbeat.core.effects import Await, Grad, Gradient, Push, View
from offbeat.core.errors import ConfigError
from offbeat.core.solver import Round, Solver

OVERLAPPING = frozenset({Push, Await})
"""What rounds ask for besides that compute while a message is under way."""


class Overlap:
    """The attribute `overlap` of a solver, off by default: whether its workers compute while a message is under way."""

    def __get__(self, solver: "MayOverlap | None", kind: type) -> bool:
        return solver is not None and Push in solver.asks

    def __set__(self, solver: "MayOverlap", wanted: bool) -> None:
        if wanted and solver.needs_answer is not None:
            raise ConfigError(
                f"solver.overlap must be false for {type(solver).__name__}, got true: {solver.needs_answer}"
            )
        solver.asks = solver.asks | OVERLAPPING if wanted else solver.asks - OVERLAPPING


class MayOverlap(Solver):
    """A solver whose workers' states have a `view`, and a gradient that is `ready` to travel."""

    needs_answer: str | None = "it does not declare that its workers may compute before they are answered"
    """Why a worker must have its answer before it computes again; None, declared by a method that allows `overlap`."""

    overlap = Overlap()

    def pushed(self, w: Any, g: Gradient) -> Gradient:
        """What a worker sends of a gradient."""
        raise NotImplementedError

    def overlapping_round(self, w: Any, view: View) -> Round:
        """The last gradient travels, and the next one is computed at what was answered before."""
        if w.ready is None:  # there is none to send yet
            w.ready = yield Grad(view.x, view.version)
            if w.ready is None:  # cancelled
                w.view = None
            return
        g, w.ready = w.ready, None
        yield Push(self.pushed(w, g))
        g = yield Grad(view.x, view.version)
        w.view = yield Await()
        w.ready = g

    def kept(self, w: Any) -> Iterable[Gradient]:
        return () if w is None or w.ready is None else (w.ready,)
