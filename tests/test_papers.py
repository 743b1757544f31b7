"""Recipes are sound, the statistics are what they say, and a verdict follows from numbers alone."""

import json
import re
import sys
from importlib.resources import files
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

import offbeat
from offbeat import cli
from offbeat.core.errors import ConfigError
from offbeat.lab.config import NONE
from offbeat.lab.papers import answers, claims, pages, reproducing
from offbeat.lab.papers.answers_text import ANSWERS
from offbeat.lab.papers.beside import Beside, Compared, Panel
from offbeat.lab.papers.claim_rules import STATISTICS, spearman
from offbeat.lab.papers.clock_cells import clock_cell
from offbeat.lab.papers.deciding import (
    CONTRADICTED,
    HOLDS,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    UNDECIDED,
    decide,
    half_width,
    own_statistic,
)
from offbeat.lab.papers.expansion import settings
from offbeat.lab.papers.line_chart import line_charts
from offbeat.lab.papers.reading import Reading
from offbeat.lab.papers.recipe import RESERVED, Lines, names, parse, recipe
from offbeat.lab.papers.stored import stored
from offbeat.lab.studies.sweep import configured
from offbeat.report.export import tables_of

ROOT = Path(__file__).parent.parent
RUNNABLE = [n for n in names() if recipe(n).runs]


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_cell_of_a_recipe_is_a_configuration(name):
    r = recipe(name)
    for variant in r.variants:
        for size in r.sizes:
            for point in r.points():
                if r.clock:
                    clock_cell(r.base, settings(r, size, variant, point), 0, Path("nowhere"))
                    continue
                configured(r.base, {**settings(r, size, variant, point), "seed": 0}, NONE, tried=False)


@pytest.mark.parametrize("name", names())
def test_every_claim_names_a_statistic_and_one_kind_of_bound(name):
    for claim in recipe(name).claims:
        assert claim.statistic in STATISTICS
        given = [b for b in (claim.at_least, claim.at_most, claim.equals) if b is not None]
        assert len(given) == 1
        assert claim.equals is None or claim.tolerance > 0 or not recipe(name).runs


def own(name: str, key: str) -> float:
    r = recipe(name)
    found = own_statistic(r, next(c for c in r.claims if c.key == key))
    assert found is not None
    return found


def matrix(name: str) -> np.ndarray:
    """The published numbers as they stand in the file, NC as 10."""
    return np.array([[10.0 if v == "NC" else v for v in row] for row in recipe(name).published.values])


def test_the_columns_that_tables_iii_and_iv_borrow_are_those_of_table_ii():
    slow = matrix("lamour2023-table2")[5:, 1::2]  # one slow worker, split labels
    assert (matrix("lamour2023-table3")[:, 2::4] == slow).all()
    assert (matrix("lamour2023-table4")[:, 0::3] == slow).all()


def test_statistics_of_the_papers_own_cells_are_those_of_plain_arithmetic():
    two, four = matrix("lamour2023-table2"), matrix("lamour2023-table4")
    gap = two[:, 0::2] - two[:, 1::2]
    assert own("lamour2023-table2", "labels-cost") == pytest.approx(gap[2:].mean())
    assert own("lamour2023-table2", "labels-cost-one-slow") == pytest.approx(gap[5:].mean())
    assert own("lamour2023-table2", "one-slow-cost") == pytest.approx((two[2:5] - two[5:]).mean())
    none, two_, five = four[:, 0::3], four[:, 1::3], four[:, 2::3]
    assert own("lamour2023-table4", "lambda-2") == pytest.approx((two_ - none).mean())
    converged = five > 10
    assert own("lamour2023-table4", "lambda-5-converged") == pytest.approx((five - none)[converged].mean())
    pairs = [(a, b) for c in (two_, five) for a, b in zip(c.ravel(), none.ravel(), strict=True) if a > b]
    assert len(pairs) == 8
    assert own("lamour2023-table4", "gain-where-improved") == pytest.approx(
        np.mean([100 * (a / b - 1) for a, b in pairs])
    )
    three = matrix("lamour2023-table3").reshape(3, 3, 4)
    assert own("lamour2023-table3", "usual-momentum-best") == (three.argmax(2) == 2).mean()


def test_rank_correlation_is_one_less_six_sums_of_squares():
    ys = [4.0, 1.0, 2.0, 3.0]
    assert spearman([1, 2, 3, 4], ys) == pytest.approx(1 - 6 * (9 + 1 + 1 + 1) / (4 * 15))
    assert spearman([1, 1], [1, 2]) is None


TINY = """
paper = "nobody2000"
place = "Table 0"
title = "A bowl"
metric = "loss"
label = "loss"
unit = ""
scale = 1.0
higher = false
differs = ["everything"]

[base]
task = { name = "quadratic", dim = 4, noise = 0.1 }
budget = { updates = 20 }
[base.solver]
name = "asgd"

[axes.workers]
1 = { "cluster.workers" = 1 }
2 = { "cluster.workers" = 2 }
[axes.lr]
"0.1" = { "optimizer.lr" = 0.1 }
"0.2" = { "optimizer.lr" = 0.2 }

[variants.plain]
about = "as it stands"
[variants.same]
about = "the same runs by another name"

[sizes.quick]
seeds = 2
set = { "budget.updates" = 10 }
[sizes.full]
seeds = 3

[published]
rows = ["workers"]
columns = ["lr"]
values = [[1.0, 0.5], [1.0, ""]]

[[claims]]
key = "faster"
quote = "a larger rate is lower"
place = "Section 1"
rule = "0.2 less 0.1 is below 0 with one worker."
statistic = "difference"
of = { lr = "0.2", workers = "1" }
against = { lr = "0.1" }
at_most = 0.0
seeds = 2
"""


def rows(values: dict[tuple[str, str], list[float]]) -> list[dict]:
    """Results of the tiny recipe: numbers by seed for each cell."""
    keys = {"size": "full", "variant": "plain", "status": "done", "run": "x"}
    return [
        {**keys, "workers": w, "lr": lr, "seed": s, "value": v}
        for (w, lr), mine in values.items()
        for s, v in enumerate(mine)
    ]


def verdict(low: list[float], **changed) -> tuple[str, int | None]:
    r = parse("tiny", TINY)
    claim = r.claims[0].__class__(**{f: getattr(r.claims[0], f) for f in r.claims[0].__struct_fields__} | changed)
    d = decide(r, claim, rows({("1", "0.1"): [1.0] * len(low), ("1", "0.2"): low}))
    return d.verdict, d.seeds_needed


def test_a_verdict_is_where_the_interval_lies():
    assert verdict([0.5, 0.6, 0.5])[0] == REPRODUCED
    assert verdict([1.5, 1.6, 1.5])[0] == NOT_REPRODUCED
    assert verdict([])[0] == NOT_RUN
    assert verdict([0.5, 0.6, 0.5], seeds=4)[0] == UNDECIDED, "fewer seeds than were fixed decide nothing"
    assert verdict([0.5, 0.6, 0.5], at_most=-0.6)[0] == CONTRADICTED, "the paper's own cells differ by -0.5"


def test_undecided_names_the_seeds_that_would_decide():
    low = [0.5, 1.3, 0.6]
    found, needed = verdict(low)
    assert found == UNDECIDED
    std, room = float(np.std(low, ddof=1)), 1.0 - float(np.mean(low))
    assert half_width(std, needed) <= room < half_width(std, needed - 1)


def test_the_half_width_is_students():
    assert half_width(1.0, 3) == pytest.approx(4.302653 / sqrt(3), rel=1e-6)  # a printed table of t


def test_without_runs_a_claim_follows_from_the_paper_or_is_contradicted():
    text = TINY[: TINY.index("[base]")] + "[axes" + TINY.split("[axes", 1)[1]
    text = text.replace(text[text.index("[variants.plain]") : text.index("[published]")], "")
    r = parse("tiny", text.replace('"optimizer.lr" = 0.1', "").replace('"optimizer.lr" = 0.2', ""))
    assert decide(r, r.claims[0], []).verdict == HOLDS


def test_a_recipe_is_run_shown_and_gone_on_with(tmp_path, monkeypatch):
    """Two variants that come to the same runs share them; the second call runs nothing; the table comes back."""
    monkeypatch.setattr(reproducing, "recipe", lambda name: parse(name, TINY))
    made = offbeat.reproduce("tiny", out=tmp_path, processes=2)
    assert (len(made.cells), len(made.placed), len(made.results)) == (8, 16, 16)
    assert made.reduced == "budget.updates 10 instead of 20, 2 seeds instead of 3"
    assert made.decisions[0].verdict in (REPRODUCED, UNDECIDED)
    assert made.decisions[0].others["same"].values == made.decisions[0].ours.values
    again = reproducing.plan("tiny", out=tmp_path)
    assert again.collect() == 8
    page = again.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Reduced: budget.updates 10 instead of 20" in text
    assert {t.key for t in page.tables} == {"claims", "cells", "variants"}
    forms = [f.suffix for f in tables_of(page.tables)(tmp_path / "tables")]
    assert forms == [".csv", ".md", ".tex"] * 3
    again.save(tmp_path / "tiny.parquet")
    again.save(tmp_path / "tiny.parquet")  # the same size replaces itself
    from offbeat.folders.parquet import read_results

    assert read_results(tmp_path, "tiny.parquet").num_rows == 16
    only = reproducing.plan("tiny", out=tmp_path, cell="workers=2,lr=0.1", seeds=1)
    only.collect()
    only.save(tmp_path / "tiny.parquet")
    assert read_results(tmp_path, "tiny.parquet").num_rows == 16, "the rows of other cells and seeds stay"
    assert [p.point for p in only.placed] == [("2", "0.1")] * 2


def test_a_run_that_did_not_converge_counts_as_chance_and_a_failed_one_as_nothing():
    from offbeat.lab.papers.stored import value_of

    r, accuracy = recipe("lamour2023-table2"), Reading("accuracy")
    assert value_of(r, {"status": "diverged", "accuracy": 0.3}, accuracy) == 10.0
    assert value_of(r, {"status": "done", "accuracy": 0.103, "stalled": True}, accuracy) == 10.0
    assert value_of(r, {"status": "done", "accuracy": 0.5, "stalled": False}, accuracy) == 50.0
    assert value_of(r, {"status": "failed"}, accuracy) is None


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "nothing"))

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["offbeat", *args])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lamour"], "unknown recipe 'lamour'"),
        (["lamour2023-table2"], "run: offbeat data get fashion-mnist"),
        (["lamour2023-table2", "--cell", "workers=7"], "unknown workers of lamour2023-table2 '7'"),
        (["lamour2023-table2", "--cell", "workers"], "a cell is named like delay=sync,workers=2,partition=dataset"),
        (["lamour2023-table2", "--size", "huge"], "unknown size of lamour2023-table2 'huge'"),
        (["lamour2023-table2", "--quick", "--full"], "give one of --quick, --full and --size"),
        (["lamour2023-table2", "--variant", "x"], "unknown variant of lamour2023-table2 'x'"),
        (["lamour2023-table2", "--seeds", "0"], "seeds must be a number from 1, got 0"),
    ],
)
def test_bad_input_is_one_line(shell, words, said):
    code, _, err = shell("reproduce", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_the_list_has_every_recipe(shell):
    assert [r["name"] for r in json.loads(shell("reproduce", "--json")[1])] == names()


def test_the_pages_are_those_that_the_stored_results_give():
    docs = ROOT / "docs"
    again = "offbeat reproduce --markdown, offbeat claims --markdown and offbeat claims --json write them"
    assert (docs / "reproduce.md").read_text(encoding="utf-8") == pages.reproduce_page(), again
    assert (docs / "claims.md").read_text(encoding="utf-8") == pages.claims_page(), again
    assert (docs / "findings.md").read_text(encoding="utf-8") == answers.findings_page(), (
        "offbeat claims --findings writes it"
    )
    assert json.loads((docs / "claims.json").read_text(encoding="utf-8")) == json.loads(json.dumps(claims.ledger())), (
        again
    )


def test_a_number_of_the_findings_is_that_of_the_stored_rows():
    """The mean over the seeds of one cell, from the table as it lies there."""
    where = {"size": "quick", "variant": "code", "delay": "sync", "workers": "2", "partition": "labels"}
    found = [r["value"] for r in stored("lamour2023-table2") if where.items() <= r.items()]
    words = "{ours lamour2023-table2 delay=sync,workers=2,partition=labels} points"
    assert answers.filled(words) == f"{np.mean(found):.1f} points"
    with pytest.raises(ConfigError, match="has no number for nothing"):
        answers.filled("{claim lamour2023-table2 nothing}")


def test_no_number_of_the_findings_is_typed_in():
    """Digits stand only for what was set: workers, delays, momenta."""
    for finding in ANSWERS:
        bare = answers.PLACE.sub("", " ".join(finding.said.split()))
        bare = re.sub(r"(momentum|Momentum) 0\.\d+", "", bare)
        assert not re.search(r"\d+\.\d|\d+ ?(%|points|minutes|times)", bare), bare


@pytest.mark.parametrize("name", RUNNABLE)
def test_stored_results_are_of_cells_that_the_recipe_has(name):
    r = recipe(name)
    for row in stored(name):
        assert row["size"] in r.sizes
        assert row["variant"] in r.variants
        assert all(str(row[axis]) in values for axis, values in r.axes.items())


def test_a_figure_is_drawn_in_the_papers_own_axes():
    """Along the rows or along the columns: the same lines; what is missing is left out of a line."""
    cells = [[Compared(3.0, [1.0, 2.0]), Compared(None, [5.0])], [Compared(4.0, []), Compared(None, [7.0])]]
    turned = [list(column) for column in zip(*cells, strict=True)]
    r = recipe("wongpanich2020-figure2")
    by_rows = Beside("nodes", "exchange", [Panel("", ["16", "64"], ["a", "b"], cells)])
    by_columns = Beside("exchange", "nodes", [Panel("", ["a", "b"], ["16", "64"], turned)])
    for found in (by_rows, by_columns):
        (chart,) = line_charts(r, Lines("nodes", ["x"]), found)
        (figure,) = chart.views.values()
        lines = {m.name: (list(m.x), list(m.y), m.dash) for m in figure.marks}
        assert lines == {
            "a": ([16.0], [1.5], "solid"),
            "a, published": ([16.0, 64.0], [3.0, 4.0], "dash"),
            "b": ([16.0, 64.0], [5.0, 7.0], "solid"),
        }
        assert (list(figure.marks[0].low), list(figure.marks[0].high)) == ([1.0], [2.0])
        assert figure.x.ticks == ((16.0, "16"), (64.0, "64"))


def test_no_axis_is_called_like_a_column_of_the_results():
    """The columns of a table of results are those that recipes may not use, and the axes."""
    with pytest.raises(ConfigError, match="an axis cannot be called 'run', as a column of the results is"):
        parse("x", TINY.replace("axes.lr", "axes.run").replace('"lr"', '"run"').replace("lr = ", "run = "))
    for name in names():
        assert {c for row in stored(name) for c in row} <= RESERVED | recipe(name).axes.keys()


def test_lines_run_along_an_axis_of_the_table():
    text = files("offbeat.recipes").joinpath("wongpanich2020-figure2.toml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="lines run along the last axis of the rows"):
        parse("x", text.replace('along = "nodes"', 'along = "time"'))
