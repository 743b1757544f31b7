"""Every solver keeps the contract: all cases of the table through all checks."""

import pytest

from cases import CASES
from offbeat.lab.contract import CHECKS
from offbeat.solvers import SOLVERS


def test_every_solver_is_in_the_table():
    assert {c.solver for c in CASES} == set(SOLVERS)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("check", CHECKS)
def test_contract(check, case):
    reason = CHECKS[check](case)
    if reason is not None:
        pytest.skip(reason)
