"""Every solver keeps the contract: all cases of the table through all checks that say something about them."""

import pytest

from cases import CASES
from offbeat.lab.contract import CHECKS
from offbeat.solvers import SOLVERS

# Workers with replicas of their own and nothing that counts: there is no version to read or to go back.
WITHOUT_VERSIONS = ("easgd", "ea-msgd", "ea-wild", "all-to-all", "ad-psgd", "sgp", "local-sgd", "slowmo", "diloco")
SAYS_NOTHING = {
    "versions are monotone": lambda case: case.solver in WITHOUT_VERSIONS,
    "the loss of a worker stops nobody": lambda case: case.fixed or case.workers == 1,
    "one worker is the optimizer itself": lambda case: case.alone is None,
}


def pairs(says_nothing):
    nothing = {check: SAYS_NOTHING.get(check, lambda case: False) for check in CHECKS}
    found = [(check, case) for check in CHECKS for case in CASES if nothing[check](case) == says_nothing]
    return pytest.mark.parametrize(("check", "case"), found, ids=str)


def test_every_solver_is_in_the_table():
    assert {c.solver for c in CASES} == set(SOLVERS)


@pairs(says_nothing=False)
def test_contract(check, case):
    assert CHECKS[check](case) is None, "a check that used to say something about it"


@pairs(says_nothing=True)
def test_a_check_that_says_nothing_says_why(check, case):
    assert CHECKS[check](case) in ("it has no versions", "its workers are fixed", "nothing is claimed for one worker")
