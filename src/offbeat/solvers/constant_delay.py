"""Constant delay: one worker whose gradients are applied d updates late, a stand-in for W = d + 1 equal workers."""

from collections.abc import Iterator
from typing import Literal

from offbeat.core.effects import Gradient, ServerEffect
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.solver import World
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Held, ParameterServer, Server

FILLINGS = ("wait", "immediate")


class ConstantDelay(ParameterServer):
    """Step t queues g_t(x_t) and applies g_{t-d} (Jain et al. 2018).

    `filling="wait"` (the paper's code) applies nothing during the first d steps: from then on it is bit for bit ASGD
    with W = d + 1 equally fast workers, d steps late. `filling="immediate"` applies g_t at once while the queue fills
    and queues it too, so that each of the first d gradients is applied twice.
    """

    line = "constant delay: every gradient is applied d updates late"
    paper = "jain2018"

    def __init__(self, opt: Factory, *, delay: int = 8, filling: Literal["wait", "immediate"] = "wait") -> None:
        if isinstance(delay, bool) or not isinstance(delay, int) or delay < 0:
            raise ConfigError(f"solver.delay must be a whole number from 0, got {delay!r}")
        if filling not in FILLINGS:
            raise unknown("solver.filling", str(filling), FILLINGS)
        self.delay, self.filling = delay, filling
        super().__init__(opt, collect=self._oldest)

    def init_server(self, x0: object, world: World) -> Server:
        if world.workers != 1:
            raise ConfigError(
                f"constant-delay runs on one worker, got workers={world.workers}: it stands in for delay + 1 of them"
            )
        return super().init_server(x0, world)

    def on_call(self, s: Server, worker: int, payload: Gradient | None) -> Iterator[ServerEffect]:
        if payload is not None and self.filling == "immediate" and len(s.held) < self.delay:
            s.held.insert(0, Held(worker, payload, payload.value, 1.0))
            yield from self._step(s, 1)
        yield from super().on_call(s, worker, payload)

    def _oldest(self, s: Server) -> int:
        """Collect: the oldest gradient, once d others wait behind it."""
        return int(len(s.held) > self.delay)
