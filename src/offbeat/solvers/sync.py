"""Synchronous SGD through a parameter server: one barrier a step, exactly large-batch SGD."""

from offbeat.optim.steppers import Factory
from offbeat.solvers.parameter_server import ParameterServer, Server, Worker, everybody, wait


class Sync(ParameterServer[Server, Worker]):
    """Wait for every live worker; x <- opt(x, sum_i n_i g_i / sum_i n_i); release all.

    The mean is weighted by sample counts and summed in worker order. A lost worker leaves the barrier.
    Synchronous SGD as in Chen et al. 2016, "Revisiting distributed synchronous SGD"; wongpanich2020, lamour2023.

    Args:
        opt: makes the server's optimizer.
    """

    line = "synchronous SGD: a barrier each step"
    paper = "lamour2023, wongpanich2020"
    needs_answer = (
        "all gradients of a step are taken at the same parameters, and one that is computed meanwhile is of older ones"
    )
    barrier = True
    waits_for_step = True

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt, collect=everybody, release=wait)
