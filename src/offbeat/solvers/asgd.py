"""Asynchronous SGD through a parameter server."""

from offbeat.optim.steppers import Factory
from offbeat.solvers.parameter_server import ParameterServer, Server, Worker


class ASGD(ParameterServer[Server, Worker]):
    """On every arrival x <- opt(x, g), whatever its staleness; the sender is answered with x at once.

    Push and pull are fused, so a worker sees its own update. The largest stable learning rate falls with the number
    of workers: eta h < 2 sin(pi / (2 (2 W - 1))) on a quadratic of curvature h with equal workers.
    Dean et al. 2012, "Large scale distributed deep networks"; lamour2023; "parameter server" in wongpanich2020.

    Args:
        opt: makes the server's optimizer.
    """

    line = "asynchronous SGD: every gradient is applied on arrival"
    paper = "lamour2023, wongpanich2020"
    needs_answer = None
    at_once = True

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt)
