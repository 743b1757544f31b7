"""Proposition 1: the formulas as printed, the constants as defined, and a run that keeps the promise."""

import sys
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch

from offbeat import cli
from offbeat.core.errors import ConfigError
from offbeat.core.task import Point
from offbeat.lab.papers.proposition1 import Measured, bound, check, measure, objective
from offbeat.tasks.sparse_logistic import SparseLogistic

SMALL = {"samples": 40, "features": 8, "nonzeros": 2, "support": "groups", "l2": 0.2}
UNIT = Measured(omega=4, delta=0.25, rho=0.5, L=1.0, M=1.0, c=1.0, D0=2.0, best=0.0, features=4)


def test_step_and_updates_are_those_of_the_formulas():
    """By hand, with Omega sqrt(Delta) = 2 and tau = 3: 1 + 9 + 4 * 18 = 82 and 1 + 9 + 6 * 18 = 118."""
    found = bound(UNIT, 3, 0.5, 0.5)
    assert found.gamma == pytest.approx(0.5 * 0.5 / (2 * 82))
    assert found.k == int(np.ceil(2 * 118 * log(4) / 0.25))
    assert found.slower == 118
    assert found.holds


def test_without_a_lag_the_data_do_not_matter():
    sparse, dense = bound(UNIT, 0, 0.5, 0.5), bound(replace(UNIT, omega=100, delta=1.0, rho=1.0), 0, 0.5, 0.5)
    assert sparse == dense


@pytest.mark.parametrize(("epsilon", "theta", "tau"), [(3.0, 0.5, 1), (0.5, 1.0, 1), (0.5, 0.5, -1)])
def test_what_the_proposition_does_not_cover_is_refused(epsilon, theta, tau):
    with pytest.raises(ConfigError):
        bound(UNIT, tau, epsilon, theta)


def test_the_constants_are_what_they_are_defined_to_be():
    task = SparseLogistic(**SMALL)
    m = measure(task)
    z, y = (part.numpy() for part in task.dense())
    rng = np.random.default_rng(0)
    for _ in range(5):  # nothing lies below f*, and no slope of the gradient is above L
        a, b = rng.standard_normal((2, task.features))
        assert objective(z, y, task.l2, a) > m.best
        every = np.arange(task.size)
        ga, gb = (task.gradient(Point(torch.from_numpy(p)), every, 0).value.numpy() for p in (a, b))
        assert np.linalg.norm(ga - gb) <= m.L * np.linalg.norm(a - b)
        assert (ga - gb) @ (a - b) >= m.c * ((a - b) @ (a - b))
    at_zero = [task.gradient(task.init(0), np.array([e]), 0).norm for e in range(task.size)]
    assert max(at_zero) <= m.M * (1 + 1e-12)


def test_hogwild_keeps_the_promise_and_its_lag():
    found = check(SMALL, workers=2, epsilon=0.01, theta=0.9, seeds=1)
    assert found["largest_lag"] <= found["tau"] == 1
    assert found["measured"] <= 0.01
    assert found["check"] == "holds"


def test_the_command_says_what_each_number_is(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["offbeat", "proposition1", "--tau", "0", "--set", "task.features=40"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert "k, updates that are enough (9)" in out
    assert "  Omega, the most parameters" in out
