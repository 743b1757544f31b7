"""Plain SGD: one worker, no staleness. The reference that every other solver is compared with."""

from offbeat.core.errors import ConfigError
from offbeat.core.solver import World
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import ParameterServer, Server


class Plain(ParameterServer):
    """x <- opt(x, g(x)), on one worker."""

    line = "plain SGD on one worker"
    paper = "-"

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt)

    def init_server(self, x0: object, world: World) -> Server:
        if world.workers != 1:
            raise ConfigError(
                f"plain runs on one worker, got workers={world.workers}: use --workers 1, or sync or asgd"
            )
        return super().init_server(x0, world)
