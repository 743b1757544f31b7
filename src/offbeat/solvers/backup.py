"""Synchronous SGD with backup workers."""

from offbeat.core.errors import ConfigError
from offbeat.core.solver import World
from offbeat.solvers.checks import whole
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server, wait


def fresh(s: Server, arrival: Arrival) -> bool:
    """Gate: only gradients of the current version."""
    return arrival.tau == 0


class Backup(ParameterServer):
    """W = N + b workers: step with the mean of the first N gradients of the version, drop the b late ones.

    A late worker is sent the new parameters at once. Systematically drops what slow workers have to say.
    Chen et al. 2016, "Revisiting distributed synchronous SGD", Algorithms 3 and 4 [reconstructed]; they take about
    4 backups for 96 workers.
    """

    line = "synchronous SGD that drops the b slowest gradients of each step"
    paper = "jain2018"
    cite = ("chen2016",)

    def __init__(self, opt: Factory, *, backups: int = 1) -> None:
        self.backups = whole("backups", backups, 0)
        super().__init__(opt, gate=fresh, collect=self._enough, release=wait)

    def init_server(self, x0: object, world: World) -> Server:
        if self.backups >= world.workers:
            raise ConfigError(f"solver.backups must be below the {world.workers} workers, got {self.backups}")
        return super().init_server(x0, world)

    def _enough(self, s: Server) -> int:
        needed = min(s.world.workers - self.backups, len(s.live))  # the lost are backups too
        return needed if len(s.held) >= needed else 0
