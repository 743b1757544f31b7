"""Constant delay: one worker whose gradients are applied d updates late, a stand-in for W = d + 1 equal workers."""

from collections.abc import Iterator
from typing import Any, Literal

from offbeat.core.effects import ServerEffect
from offbeat.core.solver import World
from offbeat.optim.delayed import FILLINGS
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import choice, whole
from offbeat.solvers.parameter_server import Held, ParameterServer, Server, Worker


class ConstantDelay(ParameterServer[Server, Worker]):
    """Step t queues g_t(x_t) and applies g_{t-d} (Jain et al. 2018).

    While the queue waits to be filled nothing is applied: from then on it is bit for bit ASGD with W = d + 1 equally
    fast workers, d steps late.

    Args:
        opt: makes the optimizer.
        delay: d. Default: 8.
        filling: what the first d steps do: "wait" (the paper's code) applies nothing, "immediate" applies g_t at once
            and queues it too, so that each of the first d gradients is applied twice. Default: "wait".
    """

    line = "constant delay: every gradient is applied d updates late"
    paper = "jain2018"
    needs_answer = "its delay is solver.delay and no other; asgd with overlap on one worker has a delay of 1"
    alone = True

    def __init__(self, opt: Factory, *, delay: int = 8, filling: Literal["wait", "immediate"] = "wait") -> None:
        self.delay, self.filling = whole("delay", delay, 0), choice("filling", filling, FILLINGS)
        super().__init__(opt, collect=self._oldest)

    def why_not(self, world: World) -> str | None:
        if world.workers != 1:
            return f"constant-delay runs on one worker, got workers={world.workers}: it stands in for delay + 1 of them"
        return super().why_not(world)

    def on_call(self, s: Server, worker: int, payload: Any) -> Iterator[ServerEffect]:
        if payload is not None and self.filling == "immediate" and len(s.held) < self.delay:
            s.held.insert(0, Held(worker, payload, payload.value, 1.0))
            yield from self.step(s, 1)
        yield from super().on_call(s, worker, payload)

    def _oldest(self, s: Server) -> int:
        """Collect: the oldest gradient, once d others wait behind it."""
        return int(len(s.held) > self.delay)
