"""A calm start: synchronous, or a single worker, for the first epochs; asynchronous after them."""

from offbeat.solvers.checks import choice, number
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server, everybody, wait


class Phased(ParameterServer):
    """ASGD after `epochs` epochs of `start="sync"` (a barrier each step) or `start="single"` (worker 0 alone).

    The warm start of Downpour SGD (Dean et al. 2012) and the remedy that jain2018 cites for early instability.
    """

    line = "synchronous or single-worker start, asynchronous after some epochs"
    paper = "jain2018"
    cite = ("dean2012",)

    def __init__(self, opt: Factory, *, start: str = "sync", epochs: float = 1.0) -> None:
        self.start, self.epochs = choice("start", start, ("sync", "single")), number("epochs", epochs)
        super().__init__(opt, collect=self._collect, release=self._release)
        if self.start == "single":
            self.introduce = self.epochs  # workers ask before they begin ...

    def _calm(self, s: Server) -> bool:
        return s.samples < self.epochs * (s.world.samples_per_epoch or 1)

    def _introduced(self, s: Server, worker: int) -> bool:
        """... and all but the first are let in when the first phase ends."""
        if self.start == "single":
            return worker == 0 or not self._calm(s)
        return super()._introduced(s, worker)

    def _collect(self, s: Server) -> int:
        """While calm, everybody; then each on arrival. What a barrier still holds goes into one last joint step."""
        if self.start == "sync" and (self._calm(s) or s.waiting):
            return everybody(s)
        return 1

    def _release(self, s: Server, arrival: Arrival, stepping: bool) -> list[int]:
        if self.start == "sync" and (self._calm(s) or s.waiting):
            return wait(s, arrival, stepping)
        return [arrival.worker]
