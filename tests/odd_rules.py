"""Rules that do what few rules do, or none should."""

from offbeat.core.effects import Call, Grad, Refused, Reply
from offbeat.solvers.asgd import ASGD


class Twice(ASGD):
    """Answers every call two times."""

    def on_call(self, s, worker, payload):
        for effect in super().on_call(s, worker, payload):
            yield effect
            if type(effect) is Reply:
                yield effect


class Picky(ASGD):
    """A worker that throws every second gradient away by itself."""

    def round(self, w):
        g = yield Grad(w.view.x, w.view.version)
        if g.draw % 2:
            yield Refused(0, g, w.view.version)
            return
        w.view = yield Call(g)
