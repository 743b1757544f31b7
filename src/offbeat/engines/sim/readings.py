"""What those who look on may ask of a simulated run."""

from collections.abc import Callable, Mapping
from typing import Any

from offbeat.core.effects import Applied
from offbeat.core.solver import Shown, Solver
from offbeat.core.sparse import dense
from offbeat.core.task import Point
from offbeat.engines.pool import Pool
from offbeat.engines.running.buffers import mean_buffers
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.server_link import ServerLink
from offbeat.engines.sim.shared import SharedMemory
from offbeat.engines.sim.sim_worker import SimWorker


class Readings:
    """Read from the parts of the simulator; nothing here changes the course of a run."""

    solver: Solver
    context: Context
    computing: Computing
    link: ServerLink
    memory: SharedMemory

    @property
    def point(self) -> Point:
        """The point that is evaluated: the rule's parameters; buffers are the workers' mean, in worker order."""
        context = self.context
        x = dense(self.solver.parameters(context.serving.state, self._shown()))
        return Point(x, mean_buffers(context.initial.buffers, [w.buffers for w in self.workers if w.samples > 0]))

    def _shown(self) -> dict[int, Shown]:
        """What the workers show: those who are there or, when everybody has left, those who were."""
        if not self.solver.shows_workers:
            return {}
        there = [i for i, w in enumerate(self.workers) if w.alive]
        there = there or [i for i, w in enumerate(self.workers) if w.state is not None]
        found = {i: self.solver.shown(self.workers[i].state) for i in there}
        return {i: shown for i, shown in found.items() if shown is not None}

    def breakdown(self) -> list[dict[str, float]]:
        """Where the seconds of each worker went."""
        return [w.breakdown(self.now) for w in self.workers]

    @property
    def lr(self) -> float | None:
        return self.solver.lr(self.server, self.samples)

    @property
    def lost_share(self) -> float | None:
        return self.memory.lost_share

    @property
    def optimizer_options(self) -> Mapping[str, Any] | None:
        """The options of the torch optimizer at work, if there is one."""
        return self.solver.optimizer_options(self.server)

    @property
    def pool(self) -> Pool:
        return self.computing.pool

    @property
    def initial(self) -> Point:
        return self.context.initial

    @property
    def server(self) -> Any:
        """The server's state."""
        return self.context.serving.state

    @property
    def workers(self) -> list[SimWorker]:
        return self.context.workers

    @property
    def now(self) -> float:
        return self.context.now

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.context.ledger.rows

    @property
    def updates(self) -> int:
        return self.context.ledger.updates

    @property
    def samples(self) -> int:
        return self.context.ledger.samples

    @property
    def samples_applied(self) -> int:
        return self.context.ledger.samples_applied

    @property
    def bytes(self) -> int:
        return self.context.bytes

    @property
    def queued(self) -> float:
        return self.link.queued

    @property
    def served(self) -> float:
        return self.link.served

    @property
    def loss_limit(self) -> float:
        return self.context.loss_limit

    @loss_limit.setter
    def loss_limit(self, limit: float) -> None:
        self.context.loss_limit = limit

    def show_applied(self, look: Callable[[Applied], None]) -> bool:
        self.context.ledger.on_applied = look
        return True
