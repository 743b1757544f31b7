"""A validation: its cases, its intervals and its page. The real runs are tried in small."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from offbeat.core.errors import ConfigError
from offbeat.lab.config import make
from offbeat.lab.fitting.evidence import Evidence, Series
from offbeat.lab.runs.plan import build
from offbeat.lab.validation.cases import CASES, chosen
from offbeat.lab.validation.measuring import CaseRuns, Conditions
from offbeat.lab.validation.outcome import Outcome, apart, mean
from offbeat.lab.validation.predicting import Prediction, compare, half_width
from offbeat.lab.validation.validate import Validation, load, validate

DOCS = Path(__file__).parent.parent / "docs"
STUDENT_90 = {2: 2.920, 9: 1.833, 10: 1.812}
"""Two-sided 90% quantiles, from a printed table."""


def test_the_page_is_what_the_stored_results_say():
    assert (DOCS / "validated.md").read_text(encoding="utf-8") == str(load(DOCS / "validated.json"))


def test_the_cases_are_in_two_halves_that_cover_what_is_promised():
    fit, predict = ([c for c in CASES if c.half == half] for half in ("fit", "predict"))
    assert len(fit) == len(predict) == 10
    assert {c.workers(2) for c in CASES} == {1, 2, 3, 4}
    assert {"asgd", "sync", "allreduce", "easgd", "hogwild"} == {c.solver for c in CASES}
    assert {c.batch for c in CASES} == {16, 64}
    assert {c.model for c in fit} == {c.model for c in predict} == {"lenet5", "mlp"}
    assert any(c.delay for c in predict)
    assert len({c.name for c in CASES}) == len(CASES)
    same = {tuple(map(str, c.values(2, 1.0, 0, "local").items())) for c in CASES}
    assert len(same) == len(CASES), "no case is in both halves"
    assert [c.name for c in chosen("hogwild, as; asgd, 1 worker")] == ["asgd, 1 worker", "hogwild, as many as cores"]
    assert len(chosen("MLP")) == 3
    with pytest.raises(ConfigError, match="unknown case 'hogwold'"):
        chosen("hogwold")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_case_can_be_built(case):
    plan = build(make(case.values(2, 1.0, 0, "local")))
    assert plan.cluster.workers == case.workers(2)


def test_intervals_are_student_s():
    """Of n errors of 1 each, the quantile itself."""
    for n, wanted in STUDENT_90.items():
        assert half_width([(-1.0) ** k for k in range(n)]) == pytest.approx(wanted, abs=0.001)
    assert half_width([1.0]) is None


def test_intervals_cover_what_they_say():
    """Errors of one normal distribution: the interval of ten holds the eleventh in 90% of the cases."""
    rng = np.random.default_rng(0)
    errors = rng.normal(0, 0.05, (4000, 11))
    held = [abs(e[10]) <= half_width(e[:10]) for e in errors]
    assert np.mean(held) == pytest.approx(0.9, abs=0.015)


def test_distributions_are_apart_by_what_would_have_to_be_moved():
    assert apart([0.5, 0.5], [0.5, 0.5]) == 0
    assert apart([1.0], [0.0, 1.0]) == 1
    assert apart([0.5, 0.5], [0.25, 0.5, 0.25]) == pytest.approx(0.25)
    both = mean([Outcome(1.0, [1.0], 0.1, 2.0), Outcome(3.0, [0.0, 1.0], 0.3, 4.0)])
    assert both == Outcome(2.0, [0.5, 0.5], pytest.approx(0.2), 3.0)
    assert mean([Outcome(1.0, [], 0.0, None), Outcome(1.0, [], 0.0, 1.0)]).to_target is None


def known(case, seconds_a_batch, cores=2):
    """A case whose every batch takes as long as it should, on so many cores, and nothing else takes any time."""
    workers = case.workers(cores)
    takes = seconds_a_batch * max(1.0, workers / cores)
    times = np.full(60, takes)
    started = np.arange(60) * takes
    series = [Series(w, started, times, np.full(60, case.batch)) for w in range(workers)]
    found = CaseRuns(case, workers)
    found.evidence = [Evidence("x", "local", workers, series, case.solver, case.model, 1000)] * 2
    rate = case.batch * workers / takes
    found.outcomes = [Outcome(rate * f, [0.0] * (workers - 1) + [1.0], 0.0) for f in (0.99, 1.01)]
    return found


def test_a_machine_without_noise_is_predicted_without_error(monkeypatch):
    monkeypatch.setattr("offbeat.lab.studies.calibrate.cores", lambda: 2)
    cases = [c for c in CASES if c.solver == "asgd" and not c.delay]
    takes = {(c.model, c.batch): 0.002 + 0.0001 * c.batch for c in cases}
    rows = compare([known(c, takes[c.model, c.batch]) for c in cases], 5.0, lambda line: None, training=False)
    rates = [r for r in rows if r.what == "throughput"]
    assert len(rates) == 3
    for row in rates:
        assert row.error == pytest.approx(0, abs=0.03)
        assert row.noise == pytest.approx(math.sqrt(2) * 0.01, rel=0.01)
    for row in rows:
        if row.what == "staleness":
            assert row.predicted < 0.1
    with pytest.raises(ConfigError, match="needs cases to fit to"):
        compare([known(cases[-1], 0.01)], 1.0, lambda line: None)


def test_a_truth_outside_is_said_so():
    row = Prediction("c", "predict", 2, "throughput", 100.0, 120.0, 0.01, 110.0, 130.0)
    assert (row.error, row.inside) == (pytest.approx(0.2), False)
    inside = msgspec.structs.replace(row, real=115.0)
    about = Conditions("now", 2, "x", [0.1, 0, 0])
    found = Validation("0", "local", 1.0, 2, "accuracy=0.9", about, about, ["f"], [row, inside])
    text = str(found)
    assert "| +20.0% | 1.0% | 110 to 130 | **no** |" in text
    assert "in **1 of 2, 50%**" in text
    assert "busy" not in text
    busy = msgspec.structs.replace(found, before=msgspec.structs.replace(about, load=[1.5, 0, 0]))
    assert "**The machine was busy" in str(busy)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_a_small_validation_runs_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = {"seconds": "3s", "repeats": 2, "only": "asgd, 1 worker; asgd, one more than cores", "training": False}
    found = validate(**words, out=tmp_path / "v")
    assert load(tmp_path / "v" / "validation.json") == found
    again = validate(**words, out=tmp_path / "v")  # nothing is run twice
    assert again.rows == found.rows


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"repeats": 0}, "repeats must be a whole number from 1 to 1,000, got 0"),
        ({"seconds": "0s"}, "seconds must be above 0, got '0s'"),
        ({"engine": "sim"}, "engine must be local or ray, got 'sim'"),
        ({"only": "x"}, "unknown case 'x'"),
    ],
)
def test_bad_words_are_refused_before_anything_runs(tmp_path, words, said):
    with pytest.raises(ConfigError, match=said):
        validate(**words, out=tmp_path / "v")
    assert not (tmp_path / "v").exists()
