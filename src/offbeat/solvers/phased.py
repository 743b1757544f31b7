"""A calm start: synchronous, or a single worker, for the first epochs; asynchronous after them."""

from collections.abc import Iterable

from offbeat.optim.steppers import Factory
from offbeat.solvers.options import choice, number
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server, Worker, everybody, wait


class Phased(ParameterServer[Server, Worker]):
    """For the first epochs a barrier each step, or worker 0 alone; ASGD after them.

    The warm start of Downpour SGD (Dean et al. 2012) and the remedy that jain2018 cites for early instability.

    Args:
        opt: makes the server's optimizer.
        start: "sync" (a barrier each step) or "single" (worker 0 alone). Default: "sync".
        epochs: how long this lasts. Default: 1.
    """

    line = "synchronous or single-worker start, asynchronous after some epochs"
    paper = "jain2018"
    needs_answer = "it begins in step, with gradients that are all taken at the same parameters"
    cite = ("dean2012",)
    vectors = 3

    def __init__(self, opt: Factory, *, start: str = "sync", epochs: float = 1.0) -> None:
        self.start, self.epochs = choice("start", start, ("sync", "single")), number("epochs", epochs)
        super().__init__(opt, collect=self._collect, release=self._release)
        if self.start == "single":
            self.introduce = self.epochs  # workers ask before they begin

    def introduced(self, s: Server, worker: int) -> bool:
        """With a single start, all but the first are let in when the first phase ends."""
        if self.start == "single":
            return worker == 0 or not self._first_phase(s)
        return super().introduced(s, worker)

    def _first_phase(self, s: Server) -> bool:
        return s.samples < self.epochs * (s.world.samples_per_epoch or 1)

    def _in_step(self, s: Server) -> bool:
        """Whether there is a barrier: in the first phase, and until those who wait at its end are free."""
        return self.start == "sync" and (self._first_phase(s) or bool(s.waiting))

    def _collect(self, s: Server) -> int:
        return everybody(s) if self._in_step(s) else 1

    def _release(self, s: Server, arrival: Arrival, stepping: bool) -> Iterable[int]:
        return wait(s, arrival, stepping) if self._in_step(s) else (arrival.worker,)
