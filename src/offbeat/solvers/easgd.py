"""Elastic averaging: every worker has parameters of its own, tied to a centre by a spring."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core.effects import Call, Grad, Reply, ServerEffect
from offbeat.core.errors import ConfigError
from offbeat.core.solver import Round, World
from offbeat.solvers.checks import additive, choice, number, whole
from offbeat.solvers.local import Local, Replica
from offbeat.solvers.optimizers import Factory


@dataclass(slots=True)
class Centre:
    """The server's state: the centre xc, how often it was moved, and whose turn it is."""

    x: Any
    version: int
    live: list[int]
    """In worker order."""
    turn: int
    waiting: dict[int, Any] = field(default_factory=dict)
    """Calls that wait for their turn."""


class Elastic(Local):
    """A spring of strength alpha. With `rho` it is alpha = eta rho, which moves with the schedule of eta.

    Give one of the two; by default alpha = 0.9 / W, as in Zhang et al. 2015.
    """

    records: ClassVar[tuple[type, ...]] = (Replica, Centre)

    def __init__(self, opt: Factory, alpha: float | None, rho: float | None, period: int) -> None:
        super().__init__(opt)
        if alpha is not None and rho is not None:
            raise ConfigError(
                f"give solver.alpha or solver.rho, not both: alpha = eta rho, got alpha={alpha!r} and rho={rho!r}"
            )
        self.alpha = None if alpha is None else number("alpha", alpha, 0.0, 1.0)
        self.rho = None if rho is None else number("rho", rho)
        self.period = whole("period", period)

    def init_server(self, x0: Any, world: World) -> Centre:
        return Centre(x0, 0, sorted(world.present), min(world.present))

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        w = super().init_worker(rank, x0, world)
        w.memory["alpha"] = self.alpha if self.alpha is not None else 0.9 / self.replicas(world)
        return w

    def replicas(self, world: World) -> int:
        """How many springs there are."""
        return world.workers

    def strength(self, w: Replica) -> float:
        """alpha at this moment."""
        alpha: float = w.memory["alpha"] if self.rho is None else self.eta * self.rate(w.work) * self.rho
        return alpha

    def parameters(self, s: Centre, workers: Mapping[int, Replica]) -> Any:
        """The centre."""
        return s.x


class EASGD(Elastic):
    """d = alpha (x_j - xc); xc <- xc + d; x_j <- opt(x_j - d, g(x_j)): the gradient is taken before the exchange.

    A worker exchanges every `period` steps: in the order 0, 1, ..., W - 1, 0, ... (`order="round-robin"`: the server
    answers whose turn it is) or as they come (`order="arrival"`: asynchronous EASGD). Zhang, Choromanska and LeCun
    2015, "Deep learning with elastic averaging SGD" (alpha = 0.9 / W, period 10); wongpanich2020, equations 2 and 3.
    The centre is evaluated; its version counts exchanges. A gradient is used where it was computed: no staleness.
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

    def round(self, w: Replica) -> Round:
        if w.x is None:  # it has just joined, and begins at the centre
            w.x = yield Call()
            return
        d = (yield Call((w.x, self.strength(w)))) if w.k % self.period == 0 else None
        g = yield Grad(self.point(w))
        yield from self.step(w, w.x if d is None else w.x - d, g)

    def point(self, w: Replica) -> Any:
        """Where the gradient is taken."""
        return w.x

    def on_call(self, s: Centre, worker: int, payload: Any) -> Iterator[ServerEffect]:
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


class EAMSGD(EASGD):
    """v_j <- delta v_j - eta g(x_j + delta v_j); x_j <- x_j - d + v_j, with d as in EASGD: the spring is not in v_j.

    `delta` is the momentum: 0.99 in Zhang, Choromanska and LeCun 2015 [reconstructed], which took period 1.
    """

    line = "EASGD with Nesterov momentum on the workers"
    paper = "wongpanich2020"
    cite = ("zhang2015easgd",)

    def __init__(
        self,
        opt: Factory,
        *,
        delta: float = 0.99,
        alpha: float | None = None,
        rho: float | None = None,
        period: int = 1,
        order: str = "round-robin",
    ) -> None:
        additive(opt, "ea-msgd", "its momentum is solver.delta, on every worker")
        super().__init__(opt, alpha=alpha, rho=rho, period=period, order=order)
        self.delta = number("delta", delta, 0.0, 1.0, open_end=True)

    def point(self, w: Replica) -> Any:
        return w.x + self.delta * w.memory["v"] if w.k else w.x

    def moved(self, w: Replica, x: Any, direction: Any) -> Any:
        v = -self.eta * self.rate(w.work) * direction
        w.memory["v"] = self.delta * w.memory["v"] + v if w.k else v
        return x + w.memory["v"]
