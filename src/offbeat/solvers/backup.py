"""Synchronous SGD with backup workers."""

from offbeat.core.solver import World
from offbeat.optim.steppers import Factory
from offbeat.solvers.options import whole
from offbeat.solvers.parameter_server import ParameterServer, Server, Worker, fresh, wait


class Backup(ParameterServer[Server, Worker]):
    """W = N + b workers: step with the mean of the first N gradients of the version, drop the b late ones.

    A late worker is sent the new parameters at once. Systematically drops what slow workers have to say.
    Chen et al. 2016, "Revisiting distributed synchronous SGD", Algorithms 3 and 4 [reconstructed]; they take about
    4 backups for 96 workers.

    Args:
        opt: makes the server's optimizer.
        backups: b, how many of the W workers a step does not wait for. Default: 1.
    """

    line = "synchronous SGD that drops the b slowest gradients of each step"
    paper = "jain2018"
    needs_answer = (
        "all gradients of a step are taken at the same parameters, and one that is computed meanwhile is of older ones"
    )
    cite = ("chen2016",)
    waits_for_step = True

    def __init__(self, opt: Factory, *, backups: int = 1) -> None:
        self.backups = whole("backups", backups, 0)
        self.barrier = self.backups == 0
        super().__init__(opt, gate=fresh, collect=self._enough, release=wait)

    def why_not(self, world: World) -> str | None:
        if self.backups >= world.workers:
            return f"solver.backups must be below the number of workers, {world.workers}, got {self.backups}"
        return super().why_not(world)

    def _enough(self, s: Server) -> int:
        needed = min(s.world.workers - self.backups, len(s.live))  # the lost are backups too
        return needed if len(s.held) >= needed else 0
