"""The page in a real browser: it opens from disk without errors or requests, draws and switches; names do nothing."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import browser
from folders import evaluation, make
from offbeat.folders.finding import find
from offbeat.report.figures import loss_surface
from offbeat.report.pages import delay_study
from offbeat.report.pages.build import build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tab():
    browser.require()
    with browser.tab() as opened:
        yield opened


def page_of(tmp_path, **options):
    path = tmp_path / "page.html"
    build(find([tmp_path]), **options).save(path)
    return path


def comparison(tmp_path):
    for solver, final in (("plain", 0.8), ("sync", 0.85), ("asgd", 0.9)):
        for seed in range(3):
            curve = np.linspace(0.1, final + seed / 100, 12)
            make(tmp_path / f"{solver}-{seed}", solver=solver, seed=seed, accuracy=curve, workers=4)
    return page_of(tmp_path, target="accuracy=0.5")


def single(tmp_path):
    partition = {"histograms": [[5, 1], [1, 5]], "labels": [0, 1]}
    scores = evaluation([[8, 2], [1, 9]], ["cat", "dog"])
    make(tmp_path / "run", files={"evaluation.json": scores, "partition.json": partition})
    return page_of(tmp_path)


@pytest.mark.parametrize("kind", [single, comparison])
@pytest.mark.parametrize("phone", [False, True])
def test_a_page_opens_from_disk_without_errors_or_requests_and_every_chart_is_drawn(tab, tmp_path, kind, phone):
    path = kind(tmp_path)
    tab.size(390 if phone else 1280, 844, phone=phone)
    tab.open(path)
    assert tab.errors == []
    assert [r for r in tab.requests if not r.startswith("data:")] == [path.resolve().as_uri()]
    charts = tab.run("document.querySelectorAll('.plot').length")
    assert charts > 5
    assert tab.run("document.querySelectorAll('.plot .main-svg').length") >= charts
    assert tab.run("document.querySelectorAll('.trouble').length") == 0
    # No chart is an empty frame.
    empty = "[...document.querySelectorAll('.plot')].filter(p => !p.querySelector('.trace, .points path, .hm, .cn'))"
    assert tab.run(f"{empty}.map(p => p.id)") == []
    # Nothing sticks out to the side.
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")


def test_switching_the_axis_redraws_all_curves(tab, tmp_path):
    tab.size(1280, 900)
    tab.open(comparison(tmp_path))
    axis = "document.querySelector('#plot-curve-{} .xtitle').textContent"
    assert tab.run(axis.format("accuracy")) == "virtual time (s)"
    tab.run("document.querySelector('[data-chart=curve-accuracy] [data-view=samples]').click()")
    for metric in ("accuracy", "loss"):
        tab.wait(axis.format(metric) + " === 'samples'")
    tab.run("document.querySelector('[data-chart=curve-loss] .log').click()")
    tab.wait("document.getElementById('plot-curve-loss').layout.yaxis.type === 'log'")
    assert tab.run("document.getElementById('plot-curve-accuracy').layout.yaxis.type") != "log"
    assert tab.errors == []


def test_the_theme_follows_the_system_and_the_switch(tab, tmp_path):
    path = single(tmp_path)
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('plot-curve-loss').layout.font.color"
    tab.size(1280, 900, dark=True)
    tab.open(path)
    dark = tab.run(background), tab.run(ink)
    tab.run("document.getElementById('theme').click()")
    tab.wait("document.documentElement.dataset.ready === 'true'")
    light = tab.run(background), tab.run(ink)
    assert dark == ("rgb(22, 25, 30)", "#E5E7EB")
    assert light == ("rgb(255, 255, 255)", "#1F2937")
    tab.run("localStorage.clear()")


NASTY = "<b>bold</b><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\"'</script><script>hacked=1"


def test_names_from_users_do_nothing(tab, tmp_path):
    for seed in range(2):
        for solver in (NASTY, "asgd"):
            # A folder's name holds no slash; everything else may.
            folder = tmp_path / f"{solver.replace('/', '')}-{seed}"
            make(
                folder,
                solver=solver,
                seed=seed,
                task=NASTY,
                settings={"data": {NASTY: NASTY}},
                files={
                    "evaluation.json": evaluation([[1, 2], [3, 4]], [NASTY, "b"]),
                    "tags.json": [NASTY[:100]],
                },
            )
    tab.size(1280, 900)
    one = tmp_path / "one.html"
    build(find([tmp_path])[:1], title=NASTY).save(one)
    for path in (page_of(tmp_path), one):
        tab.open(path)
        assert tab.run("window.hacked === undefined")
        assert tab.errors == []
        assert tab.run("document.querySelectorAll('main img').length") == 0
        assert "<script>window.hacked=1</script>" in tab.run("document.querySelector('main').innerText")
        # The figures show the name too, as text.
        assert "<b>bold</b><script>" in tab.run(
            "[...document.querySelectorAll('.plot text')].map(t => t.textContent).join(' ')"
        )


def test_the_page_prints_light_and_whole(tab, tmp_path):
    tab.size(1280, 900, dark=True)
    tab.open(single(tmp_path))
    pdf = tab.call("Page.printToPDF", printBackground=True)["data"]
    assert len(pdf) > 20_000
    assert tab.errors == []


def test_two_hundred_runs_open_in_seconds(tab, tmp_path):
    for lr in range(20):
        for seed in range(10):
            curve = np.linspace(0.1, 0.9, 200)
            make(tmp_path / f"{lr}-{seed}", lr=0.01 * (lr + 1), seed=seed, accuracy=curve, gradients=300)
    path = page_of(tmp_path)
    assert path.stat().st_size < 15_000_000
    tab.size(1280, 900)
    tab.open(path)
    assert tab.errors == []


def test_a_trace_of_a_million_rows_opens_in_seconds(tab, tmp_path):
    make(tmp_path / "run", workers=16, gradients=1_000_000)
    path = page_of(tmp_path)
    assert path.stat().st_size < 15_000_000
    tab.size(1280, 900)
    tab.open(path)
    assert tab.errors == []


def test_landscapes_delays_and_sweeps_are_drawn(tab, tmp_path):
    """A surface needs WebGL, a contour and a heat map do not; all must be there, in both themes."""
    a, b = (v.ravel() for v in np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9)))
    pq.write_table(pa.table({"a": a, "b": b, "loss": a * a + b * b + 0.01}), tmp_path / "grid.parquet")
    path = {"run": [0, 0, 0], "samples": [0, 1, 2], "a": [0.9, 0.4, 0.0], "b": [-0.9, 0.1, 0.0], "distance": [0.0] * 3}
    pq.write_table(
        pa.table({**path, "loss_on_plane": [1.6, 0.2, 0.01], "loss": [1.7, 0.2, 0.01]}), tmp_path / "paths.parquet"
    )
    about = {"grid": 9, "directions": "pca", "explained": [0.7, 0.2], "solvers": ["asgd"], "seeds": [0]}
    (tmp_path / "landscape.json").write_text(json.dumps({**about, "task": "digits", "parameters": 9}))
    pages = {"landscape": loss_surface.page(loss_surface.read(tmp_path))}
    pages["delays"] = delay_study.page({w: np.random.default_rng(0).poisson(w - 1, 500) for w in (4, 8)}, "asgd")
    for w in (2, 4):
        for lr in (0.1, 0.2):
            status = "diverged" if (w, lr) == (4, 0.2) else "done"
            make(tmp_path / "sweep" / f"{w}-{lr}", workers=w, lr=lr, status=status)
    pages["sweep"] = build(find([tmp_path / "sweep"]))
    drawn = {"landscape": (".gl-container canvas", ".contourlayer path"), "delays": (".scatterlayer path",)}
    drawn["sweep"] = (".heatmaplayer image", ".scatterlayer path.point")
    for dark in (False, True):
        tab.size(1280, 900, dark=dark)
        for name, page in pages.items():
            tab.open(page.save(tmp_path / f"{name}.html"))
            assert tab.errors == [], name
            for what in drawn[name]:
                assert tab.run(f"document.querySelectorAll('{what}').length") > 0, (name, what)


def test_in_a_notebook_the_library_comes_once_and_every_page_is_drawn(tab, tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.report.pages.page._CARRIED", set())
    make(tmp_path / "run")
    shown = [build(find([tmp_path / "run"]))._repr_html_() for _ in range(3)]
    assert len(shown[0]) > 600_000 > 5 * len(shown[1])
    frames = "[...document.querySelectorAll('iframe')].map(f => f.contentDocument)"
    drawn, gone = (
        "d.documentElement.dataset.ready === 'true'",
        "d.body.textContent.includes('came with an earlier page')",
    )
    for cells, ready in ((shown, drawn), (shown[::-1], drawn), (shown[1:], gone)):
        path = tmp_path / "notebook.html"
        path.write_text(f"<!doctype html><html data-ready=true><body>{''.join(cells)}</body></html>")
        tab.open(path)
        tab.wait(f"{frames}.every(d => {ready})")
        assert not tab.errors


@pytest.mark.parametrize("phone", [False, True])
def test_shares_end_at_100_percent(tab, tmp_path, phone):
    tab.size(390 if phone else 1200, 900, phone=phone)
    tab.open(comparison(tmp_path))
    seen = "t => t.getBoundingClientRect().width > 0 && getComputedStyle(t).opacity > 0"
    ticks = f"[...p.querySelectorAll('.xtick text')].filter({seen}).map(t => t.textContent)"
    charts = tab.run(f"[...document.querySelectorAll('.plot')].map(p => {ticks})")
    assert ["0%", "25%", "50%", "75%", "100%"] in charts, charts
