"""Rennala SGD: minibatch SGD with the gradients of whoever is fast."""

from offbeat.optim.steppers import Factory
from offbeat.solvers.options import whole
from offbeat.solvers.parameter_server import ParameterServer, Server, Worker, fresh


class Rennala(ParameterServer[Server, Worker]):
    """Collect S gradients, all at the current x, discard the others; x <- opt(x, their mean): minibatch SGD, exactly.

    Nobody waits: a worker goes on with another batch at the x it is sent.
    Tyurin and Richtarik 2023, "Optimal time complexities of parallel stochastic optimization methods".

    Args:
        opt: makes the server's optimizer.
        S: S, how many gradients make a step; 0 takes S = W. Default: 0.
    """

    line = "a step after S fresh gradients, from whoever is fast"
    paper = "-"
    needs_answer = (
        "all gradients of a step are taken at the same parameters, and one that is computed meanwhile is of older ones"
    )
    cite = ("tyurin2023rennala",)

    def __init__(self, opt: Factory, *, S: int = 0) -> None:
        self.S = whole("S", S, 0)
        super().__init__(opt, gate=fresh, collect=self._enough)

    def _enough(self, s: Server) -> int:
        S = self.S or s.world.workers
        return S if len(s.held) >= S else 0
