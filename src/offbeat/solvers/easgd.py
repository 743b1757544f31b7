"""EASGD: elastic averaging through a server."""

from collections.abc import Iterator
from typing import Any

from offbeat.core.effects import Call, Grad, Reply, ServerEffect
from offbeat.core.solver import Round
from offbeat.optim.steppers import Factory
from offbeat.solvers.elastic import Centre, Elastic, T
from offbeat.solvers.options import choice


class EASGD(Elastic[T]):
    """d = alpha (x_j - xc); xc <- xc + d; x_j <- opt(x_j - d, g(x_j)): the gradient is taken before the exchange.

    Zhang, Choromanska and LeCun 2015, "Deep learning with elastic averaging SGD" (alpha = 0.9 / W, period 10);
    wongpanich2020, equations 2 and 3. The centre is evaluated; its version counts exchanges. A gradient is used where
    it was computed: no staleness.

    Args:
        opt: makes the optimizer of each worker; its learning rate is eta.
        alpha: alpha, the strength of the spring. Default: 0.9 / W, unless there is a rho.
        rho: rho, in place of alpha: alpha = eta rho, which moves with the schedule of eta. Default: none.
        period: tau, the steps between two exchanges with the centre. Default: 1.
        order: "round-robin" (exchanges in the order 0, 1, ..., W - 1, 0, ...: the server answers whose turn it is) or
            "arrival" (as they come: asynchronous EASGD). Default: "round-robin".
    """

    line = "elastic averaging: workers tied to a centre, exchanges in turn"
    paper = "wongpanich2020"
    cite = ("zhang2015easgd",)

    def __init__(
        self,
        opt: Factory,
        *,
        alpha: float | None = None,
        rho: float | None = None,
        period: int = 1,
        order: str = "round-robin",
    ) -> None:
        super().__init__(opt, alpha, rho, period)
        self.order = choice("order", order, ("round-robin", "arrival"))

    def round(self, w: T) -> Round:
        if w.x is None:  # it has just joined, and begins at the centre
            w.x = yield Call()
            return
        d = (yield Call((w.x, self.strength(w)))) if w.k % self.period == 0 else None
        g = yield Grad(self.point(w))
        yield from self.step(w, w.x if d is None else w.x - d, g)

    def point(self, w: T) -> Any:
        """Where the gradient is taken."""
        return w.x

    def on_call(self, s: Centre, worker: int, payload: tuple[Any, float] | None) -> Iterator[ServerEffect]:
        if worker not in s.live:  # it was lost while its message was under way
            return
        if payload is None:
            yield Reply(worker, s.x)
            return
        s.waiting[worker] = payload
        if self.order == "arrival":
            yield self._exchange(s, worker)
        else:
            yield from self._in_turn(s)

    def on_join(self, s: Centre, worker: int) -> Iterator[ServerEffect]:
        s.live = sorted({*s.live, worker})
        if s.live == [worker]:
            s.turn = worker
        yield from ()

    def on_lost(self, s: Centre, worker: int) -> Iterator[ServerEffect]:
        """The token goes on to the next."""
        s.live = [i for i in s.live if i != worker]
        s.waiting.pop(worker, None)
        if s.turn == worker and s.live:
            s.turn = self._after(s, worker)
            yield from self._in_turn(s)

    def _in_turn(self, s: Centre) -> Iterator[Reply]:
        while s.turn in s.waiting:
            yield self._exchange(s, s.turn)
            s.turn = self._after(s, s.turn)

    def _after(self, s: Centre, worker: int) -> int:
        return next((i for i in s.live if i > worker), s.live[0])

    def _exchange(self, s: Centre, worker: int) -> Reply:
        x, alpha = s.waiting.pop(worker)
        d = alpha * (x - s.x)
        s.x, s.version = s.x + d, s.version + 1
        return Reply(worker, d)
