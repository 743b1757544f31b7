"""The contract of every solver: cases, trials in the simulator, and the checks that are made on them."""

from offbeat.lab.contract.case import SGD, Broken, Case
from offbeat.lab.contract.checks import CHECKS, one_worker_is_the_optimizer_itself, versions_are_monotone
from offbeat.lab.contract.trial import account, advance, compare, reincarnated, trial

__all__ = [
    "CHECKS",
    "SGD",
    "Broken",
    "Case",
    "account",
    "advance",
    "compare",
    "one_worker_is_the_optimizer_itself",
    "reincarnated",
    "trial",
    "versions_are_monotone",
]
