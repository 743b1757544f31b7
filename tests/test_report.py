"""Reports from folders: what is read, how runs are grouped, what is said of them, and how tables are written."""

import csv
import io
import json
from itertools import pairwise

import numpy as np
import pytest

import offbeat
from folders import evaluation, make, trace_table
from offbeat.core.errors import ConfigError, OffbeatError, StoreError
from offbeat.report import curves, grids, scaling, several, single, staleness, style, workers
from offbeat.report.as_plotly import resolve, spec
from offbeat.report.build import build
from offbeat.report.figure import Axis, Figure, Heat, Line
from offbeat.report.groups import group
from offbeat.report.read import RunFiles, find, load
from offbeat.report.tables import Table
from offbeat.report.verdict import Measure, bootstrap, judge

ACCURACY = Measure("accuracy", lambda r: r.summary.get("accuracy"), True, "above")


def runs_of(tmp_path, **by_solver):
    """One run a value: asgd=[0.9, 0.8] makes two seeds with these final accuracies."""
    for solver, finals in by_solver.items():
        for seed, final in enumerate(finals):
            make(tmp_path / f"{solver}-{seed}", solver=solver, seed=seed, accuracy=(0.1, final))
    return find([tmp_path])


# -- the verdict ------------------------------------------------------------------------------------------------


def test_no_winner_is_named_when_the_interval_spans_zero(tmp_path):
    groups = group(runs_of(tmp_path, asgd=[0.90, 0.80, 0.85, 0.7], sync=[0.80, 0.90, 0.84, 0.7]))
    found = judge(groups, ACCURACY)
    assert found.winner is None
    assert found.sentences[0].startswith("No winner")
    assert "spans zero" in found.sentences[0]


def test_a_winner_is_named_when_every_paired_difference_agrees_however_much_seeds_differ_among_themselves(tmp_path):
    # Unpaired, the spread over seeds (0.3) would hide a lead of 0.02.
    seeds = np.linspace(0.5, 0.8, 8)
    groups = group(runs_of(tmp_path, asgd=list(seeds + 0.02), sync=list(seeds)))
    found = judge(groups, ACCURACY)
    assert found.winner is not None
    assert found.winner.solver == "asgd"
    assert found.differences[0].mean == pytest.approx(0.02)
    assert len(found.sentences) == 1  # eight seeds need no warning


def test_few_seeds_are_called_few(tmp_path):
    found = judge(group(runs_of(tmp_path, asgd=[0.9, 0.91, 0.92], sync=[0.8, 0.81, 0.82])), ACCURACY)
    assert found.winner is not None
    assert "1 time in 4" in found.sentences[1]  # two of eight patterns of signs


def test_one_seed_each_gives_no_winner(tmp_path):
    found = judge(group(runs_of(tmp_path, asgd=[0.9], sync=[0.1])), ACCURACY)
    assert found.winner is None
    assert "one seed each" in found.sentences[0]


def test_groups_that_share_no_seed_are_not_compared(tmp_path):
    make(tmp_path / "a", solver="asgd", seed=0)
    make(tmp_path / "b", solver="sync", seed=1)
    found = judge(group(find([tmp_path])), ACCURACY)
    assert found.winner is None
    assert "shares no seed" in found.sentences[0]


def test_a_group_with_a_diverged_run_cannot_win(tmp_path):
    for seed in range(6):
        make(
            tmp_path / f"a{seed}", solver="asgd", seed=seed, accuracy=(0.1, 0.99), status="diverged" if seed else "done"
        )
        make(tmp_path / f"b{seed}", solver="sync", seed=seed, accuracy=(0.1, 0.8 + seed / 1000))
        make(tmp_path / f"c{seed}", solver="easgd", seed=seed, accuracy=(0.1, 0.7))
    found = judge(group(find([tmp_path])), ACCURACY)
    assert found.winner is not None
    assert found.winner.solver == "sync"
    assert "asgd (5 of 6 diverged)" in found.sentences[-1]


def test_lower_is_better_for_times_and_the_lead_is_positive(tmp_path):
    for seed in range(6):
        make(tmp_path / f"a{seed}", solver="asgd", seed=seed, seconds=1.0)
        make(tmp_path / f"b{seed}", solver="sync", seed=seed, seconds=3.0)
    measure = Measure("time", lambda r: r.summary["virtual_seconds"], False, "sooner than", " s")
    found = judge(group(find([tmp_path])), measure)
    assert found.winner is not None
    assert found.winner.solver == "asgd"
    assert "2 s sooner than sync" in found.sentences[0]


def test_the_bootstrap_interval_is_that_of_a_normal_mean_for_many_values():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    low, high = bootstrap(list(values))
    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.03)
    assert high == pytest.approx(values.mean() + half, abs=0.03)
    assert bootstrap(list(values)) == (low, high)


def test_the_more_groups_the_wider_the_intervals(tmp_path):
    found = judge(group(runs_of(tmp_path, asgd=[0.9, 0.8, 0.7, 0.95], sync=[0.6, 0.7, 0.65, 0.5])), ACCURACY)
    more = judge(
        group(
            runs_of(
                tmp_path / "more",
                asgd=[0.9, 0.8, 0.7, 0.95],
                sync=[0.6, 0.7, 0.65, 0.5],
                ssp=[0.1, 0.1, 0.1, 0.1],
                easgd=[0.2, 0.1, 0.1, 0.1],
            )
        ),
        ACCURACY,
    )
    wide = next(d for d in more.differences if d.other.solver == "sync")
    (narrow,) = found.differences
    assert wide.low is not None and narrow.low is not None  # noqa: PT018
    assert wide.low < narrow.low


# -- groups -----------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path):
    found = group(runs_of(tmp_path, asgd=[0.9, 0.8, 0.7]))
    assert [len(g.runs) for g in found] == [3]
    assert found[0].name == "asgd"


def test_a_key_that_the_solver_determines_is_not_part_of_the_name(tmp_path):
    make(tmp_path / "a", solver="asgd", lr=0.01)
    make(tmp_path / "b", solver="sync", lr=0.2)
    assert [g.name for g in group(find([tmp_path]))] == ["asgd", "sync"]


def test_a_key_that_tells_groups_apart_is_part_of_the_name(tmp_path):
    for w in (2, 8):
        make(tmp_path / f"a{w}", solver="asgd", workers=w, lr=0.1 / w)
    assert [g.name for g in group(find([tmp_path]))] == ["asgd W=2", "asgd W=8"]


def test_the_same_solver_has_the_same_colour_everywhere(tmp_path):
    alone = group(runs_of(tmp_path / "1", easgd=[0.5]))
    among = group(runs_of(tmp_path / "2", asgd=[0.5], sync=[0.5], easgd=[0.5]))
    assert alone[0].colour == next(g.colour for g in among if g.solver == "easgd") == style.solver_colour("easgd")
    assert len({g.colour for g in among}) == 3


def test_colours_differ_in_lightness_or_hue_for_everybody():
    """Okabe and Ito's colours, a little darker where white paper needs it: no two alike, all visible on both papers."""

    def luminance(code):
        parts = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for theme in ("light", "dark"):
        palette = style.palette(theme)
        paper = luminance(palette["paper"])
        for name in [*style.SOLVER_COLOURS, *(f"c{i}" for i in range(len(style.OKABE_ITO)))]:
            one, two = sorted((luminance(palette[name]), paper))
            assert (two + 0.05) / (one + 0.05) > 2.5, (theme, name)


# -- reading ----------------------------------------------------------------------------------------------------


def test_load_gives_one_tidy_row_a_run_that_pandas_takes(tmp_path):
    runs_of(tmp_path, asgd=[0.9, 0.8], sync=[0.7])
    frame = offbeat.load(f"{tmp_path}/**").to_pandas()
    assert len(frame) == 3
    assert frame.groupby("solver")["accuracy"].mean().to_dict() == pytest.approx({"asgd": 0.85, "sync": 0.7})
    assert set(frame["optimizer.lr"]) == {0.05}


def test_folders_are_found_once_however_often_they_are_named(tmp_path):
    runs_of(tmp_path, asgd=[0.9, 0.8])
    assert len(find([tmp_path, f"{tmp_path}/*", tmp_path / "asgd-0"])) == 2


def test_what_is_no_run_is_said_in_one_line(tmp_path):
    with pytest.raises(StoreError, match="not a run folder"):
        find([tmp_path])
    with pytest.raises(StoreError, match="no run at"):
        find([tmp_path / "nowhere"])
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(StoreError, match="not a run's description"):
        RunFiles.open(tmp_path)


# -- what pictures show -----------------------------------------------------------------------------------------


def test_the_staleness_histogram_shows_the_trace(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", workers=4, gradients=400))
    found = staleness.delays(run)
    assert found is not None
    taus = np.asarray(run.trace()["staleness"])
    assert found.counts.tolist() == np.bincount(taus).tolist()
    assert (found.mean, found.std) == (pytest.approx(taus.mean()), pytest.approx(taus.std()))
    assert found.expected == 3.0  # W - 1
    bars = staleness.histogram(found, "@asgd").marks[0]
    assert np.sum(bars.y) == pytest.approx(1.0)


def test_wide_histograms_are_binned_and_still_sum_to_one():
    counts = np.zeros(5000, np.int64)
    counts[::7] = 3
    figure = staleness.histogram(staleness.Delays(counts, None), "@asgd")
    bars = figure.marks[0]
    assert len(bars.y) <= 121
    width = bars.width / 0.9
    assert np.sum(bars.y) * width == pytest.approx(1.0)


def test_how_busy_workers_were_is_exact(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", workers=3, gradients=30, seconds=3.0))
    heat = workers._busy(run, bins=40).marks[0]
    edges = np.linspace(0, 3.0, 41)
    table = run.trace().to_pylist()
    for i in range(3):
        spans = [(r["started"], r["computed"]) for r in table if r["worker"] == i]
        slow = [sum(max(0, min(b, hi) - max(a, lo)) for a, b in spans) for lo, hi in pairwise(edges)]
        assert heat.z[i] == pytest.approx(np.clip(np.array(slow) / 0.075, 0, 1), abs=1e-9)


def test_virtual_and_wall_time_never_share_an_axis(tmp_path):
    make(tmp_path / "a", solver="asgd", clock="virtual")
    make(tmp_path / "b", solver="asgd", clock="wall")
    runs = find([tmp_path])
    chart = curves.chart(group(runs), "accuracy")
    for label, figure in chart.views.items():
        if label.endswith("time"):
            assert len([m for m in figure.marks if isinstance(m, Line)]) == 1
            assert figure.x.label == label
    assert {"virtual time", "wall time"} <= set(chart.views)
    page = several.page(runs, target="accuracy=0.5")
    assert any("Times are not compared" in s for s in page.verdict)


def test_time_to_target_is_that_of_the_first_evaluation_that_reaches_it(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", accuracy=(0.1, 0.5, 0.7, 0.6, 0.9), seconds=8.0))
    assert scaling.time_to(run, offbeat.Target.parse("accuracy=0.6")) == 4.0
    assert scaling.time_to(run, offbeat.Target.parse("accuracy=0.95")) is None


def test_speed_up_is_against_plain_sgd_and_efficiency_is_its_share(tmp_path):
    make(tmp_path / "p", solver="plain", workers=1, seconds=12.0, target="accuracy=0.9")
    for w, seconds in ((2, 8.0), (4, 4.0), (8, 3.0)):
        make(tmp_path / f"w{w}", solver="asgd", workers=w, seconds=seconds, target="accuracy=0.9")
    groups = group(find([tmp_path]))
    up, share = scaling.speed_up(groups, offbeat.Target.parse("accuracy=0.9"))
    line = up.views[""].marks[0]
    assert list(line.x) == [2, 4, 8]
    assert line.y == pytest.approx([1.5, 3.0, 4.0])
    assert share.views[""].marks[0].y == pytest.approx([0.75, 0.75, 0.5])
    assert up.views[""].marks[-1].name == "ideal"


def test_a_heat_map_holds_the_means_and_marks_what_diverged(tmp_path):
    for w in (2, 4):
        for lr in (0.1, 0.2):
            for seed in (0, 1):
                bad = (w, lr) == (4, 0.2)
                make(
                    tmp_path / f"{w}-{lr}-{seed}",
                    workers=w,
                    lr=lr,
                    seed=seed,
                    accuracy=(0.1, lr * w + seed / 100),
                    status="diverged" if bad else "done",
                )
    grid = grids.of_runs(find([tmp_path]))
    (chart,) = grids.heat_maps(grid, "optimizer.lr", "workers", "accuracy")
    heat = chart.views[""].marks[0]
    assert isinstance(heat, Heat)
    assert heat.z == pytest.approx(np.array([[0.205, 0.405], [0.405, np.nan]]), nan_ok=True)
    assert heat.crossed.tolist() == [[False, False], [False, True]]
    assert "diverged" in chart.caption


def test_confusion_and_per_class_scores_come_from_the_evaluation(tmp_path):
    matrix = [[8, 2], [1, 9]]
    run = RunFiles.open(make(tmp_path / "a", files={"evaluation.json": evaluation(matrix, ["cat", "dog"])}))
    page = single.page(run)
    table = next(t for t in page.tables if t.key == "classes")
    assert table.rows[0] == ["cat", round(8 / 9, 4), 0.8, round(16 / 19, 4), 10]
    assert any(c.key == "confusion" for c in page.charts)


# -- size -------------------------------------------------------------------------------------------------------


def test_a_trace_of_a_million_rows_becomes_a_small_page(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", workers=16, gradients=1_000_000))
    page = single.page(run)
    assert len(page._data()) < 1_500_000
    assert len(page.html()) < 15_000_000


def test_two_hundred_runs_become_a_small_page(tmp_path):
    for lr in range(20):
        for seed in range(10):
            make(
                tmp_path / f"{lr}-{seed}",
                lr=0.01 * (lr + 1),
                seed=seed,
                accuracy=np.linspace(0.1, 0.9, 200),
                gradients=500,
            )
    page = build(find([tmp_path]))
    assert len(page.html()) < 15_000_000
    assert len(page._data()) < 5_000_000


# -- tables and texts -------------------------------------------------------------------------------------------


def test_tables_are_written_as_csv_markdown_and_latex():
    table = Table("t", "T", ["name", "value"], [["a|b, $x_1$", 0.5], ["<c>", None]])
    assert list(csv.reader(io.StringIO(table.csv()))) == [["name", "value"], ["a|b, $x_1$", "0.5"], ["<c>", ""]]
    assert table.markdown().splitlines()[1:] == ["| --- | ---: |", "| a\\|b, $x_1$ | 0.5 |", "| &lt;c> | – |"]
    assert r"a|b, \$x\_1\$ & 0.5 \\" in table.latex()
    assert table.latex().count("&") == 3


def test_names_from_users_are_escaped_in_the_page_and_in_the_figures(tmp_path):
    bad = "</script><script>alert(1)</script>"
    run = RunFiles.open(make(tmp_path / "a", solver=bad, task="<img src=x onerror=alert(1)>"))
    html = single.page(run).html()
    assert bad not in html
    assert "<img" not in html
    figure = Figure("t", Axis("<b>x</b>"), Axis("y"), (Line([0, 1], [0, 1], bad, "@asgd"),))
    assert "<" not in json.dumps(spec(figure))


def test_every_colour_of_a_figure_is_a_token_that_both_themes_know(tmp_path):
    page = single.page(RunFiles.open(make(tmp_path / "a")))
    for chart in page.charts:
        for figure in chart.views.values():
            for theme in ("light", "dark"):
                assert '"@' not in json.dumps(resolve(spec(figure), theme))


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_every_figure_is_also_drawn_for_print(tmp_path, form):
    page = build([RunFiles.open(make(tmp_path / "a", solver="$<asgd>_1"))])
    charts = page.charts if form == "svg" else page.charts[:1]
    for chart in charts:
        saved = next(iter(chart.views.values())).save(tmp_path / f"{chart.key}.{form}")
        assert saved.stat().st_size > 1000


def test_a_figure_is_saved_in_no_other_form(tmp_path):
    figure = Figure("t", Axis("x"), Axis("y"), (Line([0, 1], [0, 1], "a", "@asgd"),))
    with pytest.raises(ConfigError, match=r"\.svg, \.png, \.pdf"):
        figure.save(tmp_path / "a.gif")


def test_a_run_that_has_not_ended_has_a_page_too(tmp_path):
    path = make(tmp_path / "a", status="interrupted")
    info = json.loads((path / "run.json").read_text())
    del info["summary"]
    (path / "run.json").write_text(json.dumps(info))
    (path / "trace.parquet").unlink()
    assert "interrupted" in single.page(RunFiles.open(path)).html()


def test_errors_are_ours(tmp_path):
    path = make(tmp_path / "a")
    (path / "metrics.parquet").write_bytes(b"not parquet")
    with pytest.raises(OffbeatError, match="cannot be read"):
        single.page(RunFiles.open(path))


def test_the_trace_of_the_folders_is_consistent():
    rows = trace_table(50, 4, 1.0).to_pylist()
    assert all(r["started"] <= r["computed"] <= r["time"] for r in rows)
    assert all(r["staleness"] == r["version_applied"] - r["version_read"] for r in rows)


def test_load_without_arguments_looks_into_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "runs" / "a")
    assert load().num_rows == 1


def test_a_sweeps_table_gives_small_multiples_over_a_third_key_and_lines_over_one(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = [
        {"lr": lr, "workers": w, "momentum": m, "seed": s, "status": "done", "accuracy": lr + w / 100 + m + s / 1000}
        for lr in (0.1, 0.2)
        for w in (2, 4)
        for m in (0.0, 0.5)
        for s in (0, 1)
    ]
    cells[0] |= {"status": "failed", "accuracy": None}
    pq.write_table(pa.Table.from_pylist(cells), tmp_path / "results.parquet")
    grid = grids.of_results(tmp_path / "results.parquet")
    panels = grids.heat_maps(grid, "lr", "workers", "accuracy", "momentum")
    assert [c.title for c in panels] == ["momentum = 0", "momentum = 0.5"]
    left, right = (c.views[""].marks[0] for c in panels)
    assert (left.low, left.high) == (right.low, right.high)  # one scale
    assert right.z == pytest.approx(np.array([[0.6205, 0.7205], [0.6405, 0.7405]]))
    assert np.isnan(left.z[0, 0])
    assert left.crossed.tolist() == [[True, False], [False, False]]
    line = grids.lines(grid, "lr", "accuracy", "momentum").views[""].marks[-1]
    assert (line.low, line.high) == (pytest.approx([0.62, 0.72]), pytest.approx([0.641, 0.741]))
    with pytest.raises(ConfigError, match="unknown key of these runs 'lrr'"):
        grids.heat_maps(grid, "lrr", "workers", "accuracy")


def test_a_missing_browser_is_a_reason_to_skip_and_in_ci_a_failure(monkeypatch):
    import browser

    monkeypatch.setattr(browser, "CHROMIUM", None)
    monkeypatch.delenv("OFFBEAT_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no chromium"):
        browser.require()
    monkeypatch.setenv("OFFBEAT_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no chromium"):
        browser.require()


def test_a_thousand_workers_still_make_a_small_page(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", workers=1000, gradients=20_000))
    page = single.page(run)
    assert len(page._data()) < 1_500_000
    (shares,) = [c for c in page.charts if c.key == "breakdown"]
    assert [n.partition(":")[0] for n in shares.views[""].y.categories] == ["least busy", "median", "busiest"]
