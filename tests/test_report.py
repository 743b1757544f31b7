"""Reports from folders: what is read, how runs are grouped, what is said of them, and how tables are written."""

import csv
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offbeat
from folders import evaluation, make, trace_table
from offbeat.core.errors import ConfigError, OffbeatError, StoreError
from offbeat.folders.finding import find
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw import style
from offbeat.report.draw.as_plotly import resolve, spec
from offbeat.report.draw.figure import Axis, Chart, Figure, Heat, Line, Surface
from offbeat.report.figures import curves, delay_histogram, gallery, grids, scaling, workers
from offbeat.report.figures.gallery import FigureView
from offbeat.report.groups import group
from offbeat.report.notebook import Plots
from offbeat.report.numbers import normal_share
from offbeat.report.pages import several, single
from offbeat.report.pages.build import build, report
from offbeat.report.pages.library import FLAT
from offbeat.report.pages.outcomes import outcomes
from offbeat.report.pages.page import Page, Section
from offbeat.report.read import load
from offbeat.report.tables import Table
from offbeat.report.targets import find_target, time_to


def runs_of(tmp_path, **by_solver):
    """One run a value: asgd=[0.9, 0.8] makes two seeds with these final accuracies."""
    for solver, finals in by_solver.items():
        for seed, final in enumerate(finals):
            make(tmp_path / f"{solver}-{seed}", solver=solver, seed=seed, accuracy=(0.1, final))
    return find([tmp_path])


# -- groups -----------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path):
    found = group(runs_of(tmp_path, asgd=[0.9, 0.8, 0.7]))
    assert [len(g.runs) for g in found] == [3]
    assert found[0].name == "asgd"


def test_a_key_that_the_solver_determines_is_not_part_of_the_name(tmp_path):
    make(tmp_path / "a", solver="asgd", lr=0.01)
    make(tmp_path / "b", solver="sync", lr=0.2)
    assert [g.name for g in group(find([tmp_path]))] == ["asgd", "sync"]


def test_real_and_simulated_runs_are_named_by_their_engine(tmp_path):
    for engine, delay, clock in (("local", [], "wall"), ("sim", ["5ms@0"], "virtual")):
        make(tmp_path / engine, clock=clock, settings={"engine": engine, "cluster": {"workers": 4, "delay": delay}})
    assert [g.name for g in group(find([tmp_path]))] == ["asgd local", "asgd sim"]


def test_what_a_group_has_not_is_said_in_a_word(tmp_path):
    for name, delay in (("a", []), ("b", ["5ms@0"])):
        make(tmp_path / name, settings={"cluster": {"workers": 4, "delay": delay}})
    assert [g.name for g in group(find([tmp_path]))] == ["asgd delay=none", "asgd delay=5ms@0"]


def test_a_column_of_numbers_is_one_although_a_run_missed_its_target():
    assert Table("t", "t", ["time"], [["1.9 ± 0.1"], ["– (2 missed)"]]).numeric(0)


def test_a_key_that_tells_groups_apart_is_part_of_the_name(tmp_path):
    for w in (2, 8):
        make(tmp_path / f"a{w}", solver="asgd", workers=w, lr=0.1 / w)
    assert [g.name for g in group(find([tmp_path]))] == ["asgd W=2", "asgd W=8"]


def test_the_same_solver_has_the_same_colour_everywhere(tmp_path):
    alone = group(runs_of(tmp_path / "1", easgd=[0.5]))
    among = group(runs_of(tmp_path / "2", asgd=[0.5], sync=[0.5], easgd=[0.5]))
    assert alone[0].colour == next(g.colour for g in among if g.solver == "easgd") == style.solver_colour("easgd")
    assert len({g.colour for g in among}) == 3


@pytest.mark.parametrize("others", [(), ("sync", "plain")])
def test_groups_of_one_solver_are_told_apart_by_colour_and_line_style_and_their_bands_stay_translucent(
    tmp_path, others
):
    for k in range(10):
        for seed in (0, 1):
            make(
                tmp_path / f"a{k}-{seed}", solver="asgd", lr=0.01 * (k + 1), seed=seed, accuracy=(0.1, 0.5 + seed / 10)
            )
    for solver in others:
        make(tmp_path / solver, solver=solver)
    groups = group(find([tmp_path]))
    mine = [g for g in groups if g.solver == "asgd"]
    assert len({(g.colour, g.dash) for g in groups}) == len(groups)
    assert all(a.colour != b.colour and a.dash != b.dash for a, b in pairwise(mine))
    assert mine[0].colour == "@asgd"
    for chart in several.page(find([tmp_path])).charts:
        for figure in chart.views.values():
            fills = [t["fillcolor"] for t in spec(figure)["data"] if "fillcolor" in t]
            assert all(re.fullmatch(r"@[a-z0-9.-]+/0\.16", f) for f in fills)
            for theme in ("light", "dark"):
                assert '"@' not in json.dumps(resolve(spec(figure), theme))


def test_what_is_faded_twice_is_fainter():
    assert style.faded("@asgd", 0.5) == "@asgd/0.5"
    assert style.faded("@asgd/0.5", 0.5) == "@asgd/0.25"


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
    with pytest.raises(StoreError, match=r"run.json cannot be read: Expected `object`, got `array`"):
        RunFiles.open(tmp_path)


# -- what pictures show -----------------------------------------------------------------------------------------


def test_the_staleness_histogram_shows_the_trace(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", workers=4, gradients=400))
    found = delay_histogram.delays(run)
    assert found is not None
    taus = np.asarray(run.trace()["staleness"])
    assert found.counts.tolist() == np.bincount(taus).tolist()
    assert (found.mean, found.std) == (pytest.approx(taus.mean()), pytest.approx(taus.std()))
    assert found.expected == 3.0  # W - 1
    bars = delay_histogram.histogram(found, "@asgd").marks[0]
    assert np.sum(bars.y) == pytest.approx(1.0)


def test_wide_histograms_are_binned_and_still_sum_to_one():
    counts = np.zeros(5000, np.int64)
    counts[::7] = 3
    figure = delay_histogram.histogram(delay_histogram.Delays(counts, None), "@asgd")
    bars = figure.marks[0]
    assert len(bars.y) <= 121
    assert np.sum(bars.y) == pytest.approx(1.0)
    assert figure.y.label == "share of gradients, in bins of 42"


@pytest.mark.parametrize("counts", [[0, 1, 998, 1], [0] * 999 + [1] * 1000, [5, 90, 5]])
def test_the_normal_fit_is_drawn_as_the_share_that_it_gives_to_a_bin(counts):
    """A density would pass 1 where nearly all gradients are equally stale, on an axis that is called share."""
    found = delay_histogram.Delays(np.array(counts), None)
    bars, fit = delay_histogram.histogram(found, "@asgd").marks
    assert max(fit.y) <= 1
    width = bars.width / 0.9
    # Sampled at distances of one bin, the curve sums to the whole, as the bars do.
    at = np.arange(found.mean - 200 * width, found.mean + 200 * width, width)
    assert normal_share(at, found.mean, found.std, width).sum() == pytest.approx(1.0)
    assert fit.y == pytest.approx(normal_share(fit.x, found.mean, found.std, width))


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


def test_simulated_and_real_runs_share_no_column_and_no_figure_and_both_are_on_the_page(tmp_path):
    for k in range(12):  # more simulated groups than lines can be told apart: they crowd nobody out
        make(tmp_path / f"a{k}", solver="asgd", lr=0.01 * (k + 1), clock="virtual", accuracy=(0.1, 0.95))
    make(tmp_path / "b", solver="sync", clock="wall", accuracy=(0.1, 0.5, 0.8))
    page = several.page(find([tmp_path]), target="accuracy=0.5")
    for key in ("curve-accuracy", "curve-loss", "staleness", "breakdown", "time-to-target"):
        assert {c.key for c in page.charts if c.key.startswith(key)} == {f"{key}-virtual", f"{key}-wall"}
    for chart in page.charts:
        named = {m.name for f in chart.views.values() for m in f.marks if isinstance(m, Line) and m.name}
        assert not (any("sync" in n for n in named) and any("asgd" in n for n in named)), chart.key
    for table in page.tables:
        assert not any(" or " in c for c in table.columns)
    assert {t.key for t in page.tables} >= {"outcomes-virtual", "outcomes-wall"}
    (every,) = [t for t in page.tables if t.key == "runs"]
    for clock in ("virtual", "wall"):
        column = [row[every.columns.index(f"{clock} time to accuracy=0.5 (s)")] for row in every.rows]
        assert sum(v is not None for v in column) == {"virtual": 12, "wall": 1}[clock]


def test_shares_of_time_end_at_a_hundred_percent(tmp_path):
    for solver in ("asgd", "sync"):
        make(tmp_path / solver, solver=solver)
    runs = find([tmp_path])
    for page in (single.page(runs[0]), several.page(runs)):
        (figure,) = next(c for c in page.charts if c.key == "breakdown").views.values()
        axis = spec(figure)["layout"]["xaxis"]
        assert axis["range"] == [0, 1]
        assert axis["tickvals"][-1] == 1
        assert axis["ticktext"][-1] == "100%"


def test_time_to_target_is_that_of_the_first_evaluation_that_reaches_it(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", accuracy=(0.1, 0.5, 0.7, 0.6, 0.9), seconds=8.0))
    assert time_to(run, offbeat.Target.parse("accuracy=0.6")) == 4.0
    assert time_to(run, offbeat.Target.parse("accuracy=0.95")) is None


def test_speed_up_is_against_plain_sgd_and_efficiency_is_its_share(tmp_path):
    make(tmp_path / "p", solver="plain", workers=1, seconds=12.0, target="accuracy=0.9")
    for w, seconds in ((2, 8.0), (4, 4.0), (8, 3.0)):
        make(tmp_path / f"w{w}", solver="asgd", workers=w, seconds=seconds, target="accuracy=0.9")
    groups = group(find([tmp_path]))
    up, share = scaling.speed_up(FigureView(groups, offbeat.Target.parse("accuracy=0.9")))
    line = up.views[""].marks[0]
    assert list(line.x) == [2, 4, 8]
    assert line.y == pytest.approx([1.5, 3.0, 4.0])
    assert share.views[""].marks[0].y == pytest.approx([0.75, 0.75, 0.5])
    assert up.views[""].marks[-1].name == "ideal"


@pytest.mark.parametrize("plain_arrives", [True, False])
def test_table_and_figure_take_speed_up_over_the_same_row_and_say_which(tmp_path, plain_arrives):
    target = offbeat.Target.parse("accuracy=0.9")
    make(tmp_path / "p", solver="plain", workers=1, seconds=12.0, accuracy=(0.1, 0.9 if plain_arrives else 0.8))
    for w, seconds in ((2, 8.0), (4, 4.0), (8, 3.0)):
        make(tmp_path / f"w{w}", solver="asgd", workers=w, seconds=seconds)
    groups = sorted(group(find([tmp_path])), key=lambda g: g.solver != "plain")
    table = outcomes(groups, target)
    over = "plain W=1" if plain_arrives else "asgd W=2"
    (column,) = [i for i, name in enumerate(table.columns) if name == f"speed-up over {over}"]
    shown = [row[column] for row in table.rows]
    assert shown == (["1.00×", "1.50×", "3.00×", "4.00×"] if plain_arrives else [None, "1.00×", "2.00×", "2.67×"])
    up, share = scaling.speed_up(FigureView(groups, target))
    line, ideal = up.views[""].marks[0], up.views[""].marks[-1]
    assert [f"{v:.2f}×" for v in line.y] == shown[1:]
    assert f"against {over}" in up.caption
    assert ideal.y[-1] == (8.0 if plain_arrives else 4.0)  # eight workers, or four times the reference's two
    # Efficiency is the speed-up's share of the ideal one.
    workers = np.array([2, 4, 8]) / (1 if plain_arrives else 2)
    assert share.views[""].marks[0].y == pytest.approx(np.array(line.y) / workers)


def test_without_anybody_at_the_target_there_is_no_speed_up(tmp_path):
    make(tmp_path / "a", solver="asgd", accuracy=(0.1, 0.2))
    make(tmp_path / "s", solver="sync", accuracy=(0.1, 0.2))
    table = outcomes(group(find([tmp_path])), offbeat.Target.parse("accuracy=0.9"))
    assert not any("speed-up" in c for c in table.columns)


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


@pytest.mark.parametrize("kind", ["page", "picture"])
def test_a_diverged_run_does_not_scale_everybodys_loss(tmp_path, kind):
    for solver, losses in {"asgd": [2.3, 1.0, 0.3], "sync": [2.3, 1.5, 0.5], "easgd": [2.3, 1e4, 1.5e7]}.items():
        path = make(tmp_path / solver, solver=solver, status="diverged" if solver == "easgd" else "done")
        table = pq.read_table(path / "metrics.parquet").drop_columns(["loss", "accuracy"])
        pq.write_table(table.append_column("loss", pa.array(losses)), path / "metrics.parquet")
    runs = find([tmp_path])
    if kind == "page":
        chart = next(c for c in several.page(runs).charts if c.key == "curve-loss")
        for figure in chart.views.values():
            low, high = spec(figure)["layout"]["yaxis"]["range"]
            assert low < 0.3
            assert 2.3 < high < 4
            assert 1.5e7 in next(m for m in figure.marks if isinstance(m, Line) and m.name == "easgd").y
        assert "diverged leaves the figure" in chart.caption
    else:
        assert curves.extent([[r] for r in runs], "loss") == pytest.approx((0.3 - 0.1, 2.3 + 0.5))
    healthy = [[r] for r in runs if r.status == "done"]
    assert curves.extent(healthy, "loss") is None


def test_solvers_of_one_picture_have_different_colours_and_known_ones_their_own(tmp_path):
    """By its name alone, a solver called Gently would have the colour of sync."""
    assert style.colour(style.solver_colour("Gently")) == style.colour(style.solver_colour("sync"))
    found = style.solver_colours(["Gently", "plain", "sync", "asgd", "bold", "ssp", "hogwild"])
    assert len({style.colour(token) for token in found.values()}) == len(found)
    assert (found["sync"], found["asgd"], found["ssp"]) == ("@sync", "@asgd", "@ssp")
    for solver in ("Gently", "sync"):
        make(tmp_path / solver, solver=solver)
    assert len({style.colour(g.colour) for g in group(find([tmp_path]))}) == 2


def test_the_staleness_of_a_diverged_run_is_shown_like_everybodys(tmp_path):
    for solver, taus in {"sync": [0.0, 0.0, 0.0], "asgd": [2.0, 3.0, 3.0]}.items():
        path = make(tmp_path / solver, solver=solver, status="diverged" if solver == "asgd" else "done")
        table = pq.read_table(path / "metrics.parquet")
        table = table.drop_columns([c for c in ("staleness",) if c in table.column_names])
        pq.write_table(table.append_column("staleness", pa.array(taus)), path / "metrics.parquet")
    assert curves.extent([[r] for r in find([tmp_path])], "staleness") is None


def test_the_number_of_a_stalled_cell_can_be_read_and_its_cross_lies_beside_it(tmp_path):
    for lr in (0.1, 0.2):
        for w in (2, 4):
            stalled, diverged = (lr, w) == (0.1, 2), (lr, w) == (0.2, 4)
            status = "diverged" if diverged else "done"
            make(tmp_path / f"{lr}-{w}", lr=lr, workers=w, accuracy=(0.1, 0.1 if stalled else 0.5), status=status)
    (chart,) = grids.heat_maps(grids.of_runs(find([tmp_path])), "optimizer.lr", "workers", "accuracy")
    (heat,) = chart.views[""].marks
    assert heat.texts == [["0.1 ×", "0.5"], ["0.5", ""]]
    assert np.asarray(heat.crossed).tolist() == [[False, False], [False, True]]


def test_confusion_and_per_class_scores_come_from_the_evaluation(tmp_path):
    matrix = [[8, 2], [1, 9]]
    run = RunFiles.open(make(tmp_path / "a", files={"evaluation.json": evaluation(matrix, ["cat", "dog"])}))
    page = single.page(run)
    table = next(t for t in page.tables if t.key == "classes")
    assert table.rows[0] == ["cat", round(8 / 9, 4), 0.8, round(16 / 19, 4), 10]
    assert any(c.key == "confusion" for c in page.charts)


# -- the table of figures ---------------------------------------------------------------------------------------


def test_a_new_figure_is_one_marked_function_and_is_on_the_page_and_in_the_notebook(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "_ONE", dict(gallery.figures_of_one()))
    monkeypatch.setattr(gallery, "_SEVERAL", dict(gallery.figures_of_several()))
    drawn = Figure("New", Axis("x"), Axis("y"), (Line([0, 1], [0, 1], "a", "@asgd"),))

    @gallery.of_one("Workers", 35)
    def brand_new(view):
        """What it shows."""
        return Chart.of("brand-new", drawn)

    @gallery.of_several("Time", 15)
    def newer(view):
        return Chart.of("newer", drawn)

    runs = [RunFiles.open(make(tmp_path / s, solver=s, target="accuracy=0.9")) for s in ("asgd", "sync")]
    keys = [c.key for c in single.page(runs[0]).charts]
    assert keys[keys.index("updates") + 1] == "brand-new"
    assert keys[keys.index("brand-new") + 1] == "breakdown"
    assert [c.key for c in several.page(runs).charts if c.key in ("newer", "breakdown")] == ["newer", "breakdown"]
    plots = Plots(runs[0])
    assert plots.brand_new() is drawn
    assert "brand_new" in dir(plots)
    assert plots.brand_new.__doc__ == "What it shows."


def test_the_figure_that_the_docs_explain_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "_ONE", dict(gallery.figures_of_one()))
    text = (Path(__file__).parent.parent / "docs" / "report.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(from offbeat.report.draw.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    exec(compile(example, "report.md", "exec"), {})
    run = RunFiles.open(make(tmp_path / "a"))
    assert single.page(run).charts[-1].key == "batch-losses"
    assert "<svg" in Plots(run).losses_of_batches()._repr_svg_()


def test_a_figure_has_a_place_and_a_name_of_its_own(monkeypatch):
    monkeypatch.setattr(gallery, "_ONE", dict(gallery.figures_of_one()))

    def timeline(view):
        return None

    def other(view):
        return None

    with pytest.raises(ValueError, match="two figures are called timeline"):
        gallery.of_one("Workers", 35)(timeline)
    with pytest.raises(ValueError, match="not the only figure 10 of Workers"):
        gallery.of_one("Workers", 10)(other)
    with pytest.raises(ConfigError, match="unknown section 'Worker'"):
        gallery.of_one("Worker", 10)
    with pytest.raises(ConfigError, match="unknown section 'Workers'"):
        gallery.of_several("Workers", 10)


def test_a_notebook_says_what_figures_there_are_and_what_a_run_lacks(tmp_path):
    plots = Plots(RunFiles.open(make(tmp_path / "a")))
    with pytest.raises(AttributeError, match="no figure 'timelin'; there are: accuracy, breakdown"):
        _ = plots.timelin
    with pytest.raises(ConfigError, match="has no evaluation by class"):
        plots.confusion()
    with pytest.raises(ConfigError, match=r"record\.diagnose_every"):
        plots.diagnostics()


# -- size -------------------------------------------------------------------------------------------------------


def test_a_trace_of_a_million_rows_becomes_a_small_page(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", workers=16, gradients=1_000_000))
    page = single.page(run)
    assert len(page._data()) < 1_500_000
    assert len(page.html()) < 15_000_000


def test_a_page_holds_no_more_of_plotly_than_it_draws_with(tmp_path):
    # The part's own list of what it can draw; a page with another kind of trace would stay empty there.
    flat = single.page(RunFiles.open(make(tmp_path / "a")))
    kinds = {t["type"] for c in flat.charts for f in c.views.values() for t in spec(f)["data"]}
    assert kinds <= {"scatter", "bar", "heatmap", "contour"}
    assert "plotly.js (cartesian - minified)" in flat.html()
    assert len(flat.html()) < 1e6, "about 0.7 MB of it are the library, which is packed"
    surface = Figure("s", Axis("x"), Axis("y"), (Surface([0, 1], [0, 1], [[0, 1], [1, 2]], "loss"),))
    spatial = Page("s", [], [Section("s", [Chart.of("s", surface)])])
    assert "plotly.js (cartesian - minified)" not in spatial.html()
    assert len(spatial.html()) > 1e6


def test_the_part_of_plotly_is_of_the_version_that_is_pinned():
    from plotly.offline import get_plotlyjs_version

    assert f"plotly-cartesian-{get_plotlyjs_version()}.min.js" == FLAT


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


def test_what_happened_on_the_way_is_at_the_top_of_the_page(tmp_path):
    """Lost workers, a lost server, refused messages; of very many, the first ones and how many more."""
    happened = [f"worker {i} was lost (signal 9); restarted" for i in range(20)]
    for name, incidents in (("calm", []), ("few", happened[:2]), ("many", happened)):
        path = make(tmp_path / name, solver=name)
        info = json.loads((path / "run.json").read_text())
        info["summary"]["incidents"] = incidents
        (path / "run.json").write_text(json.dumps(info))
    calm, few, many = (single.page(RunFiles.open(tmp_path / name)).warnings for name in ("calm", "few", "many"))
    assert calm == []
    assert few == [f"Worker {i} was lost (signal 9); restarted." for i in range(2)]
    assert many[0] == few[0]
    assert "12 more" in many[-1]
    assert len(many) == 9
    together = several.page(find([tmp_path])).warnings
    assert [line.partition(", such as")[0] for line in together] == ["2 of 3 runs had incidents on their way"]


def test_the_page_of_a_study_has_the_order_of_its_table_whatever_its_folders_are_called(tmp_path):
    order = ["sync", "asgd", "Shy"]
    for name in order:
        make(tmp_path / f"{name}-0", solver=name)
    rows = [{"solver": name, "seed": 0, "folder": f"elsewhere/{name}-0"} for name in order]
    alphabetical = [row[0] for row in report(tmp_path).tables[0].rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "results.parquet")
    assert alphabetical == sorted(order)
    assert [row[0] for row in report(tmp_path).tables[0].rows] == order


def test_a_lucky_evaluation_of_a_run_that_stalled_is_no_target(tmp_path):
    """Two runs learn; the third was at 0.8 once, by luck, and ended where guessing is."""
    for seed, curve in enumerate(([0.1, 0.85, 0.9], [0.1, 0.5, 0.95], [0.1, 0.8, 0.1])):
        make(tmp_path / f"asgd-{seed}", seed=seed, accuracy=curve)
    target, given, why = find_target(group(find([tmp_path])), None)
    assert (target, given) == (None, False)
    assert "1 of 3 finished runs is no better than guessing" in why


@pytest.mark.parametrize(("why", "said"), [("interrupted", "Interrupted."), ("no power", "interrupted: no power.")])
def test_the_page_does_not_give_the_status_as_its_own_reason(tmp_path, why, said):
    path = make(tmp_path / "a", status="interrupted")
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "why": why}))
    assert single.page(RunFiles.open(path)).warnings == [said]


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


def test_small_numbers_on_an_axis_are_powers_of_ten_and_not_micro_somethings():
    figure = Figure("t", Axis("learning rate", log=True), Axis("loss"), (Line([1e-4, 1e-1], [1.0, 2.0], "a", "@ink"),))
    layout = spec(figure)["layout"]
    assert [layout[axis]["exponentformat"] for axis in ("xaxis", "yaxis")] == ["power", "power"]
