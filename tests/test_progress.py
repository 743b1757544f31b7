"""What is shown on the way: in a notebook, on a terminal, in a pipe."""

import io
import sys
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

import offbeat
from offbeat import progress


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def notebook(monkeypatch):
    """What a notebook would show, one entry for each time it is told."""
    told: list[str] = []

    class ZMQInteractiveShell:
        pass

    def display(made, display_id):
        told.append(made)
        return SimpleNamespace(update=told.append)

    ipython, shown = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = ZMQInteractiveShell
    shown.HTML, shown.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.setattr(progress, "_REDRAWN_EVERY", 0.0)
    return told


def test_a_notebook_sees_rates_and_time_left_and_the_line_is_gone_at_the_end(notebook):
    with progress._shown("<digits>") as show:
        show(0.0, "starting")
        show(0.5, "100 samples/s")
    assert "&lt;digits&gt;" in notebook[2]
    assert 'value="0.500"' in notebook[2]
    assert "50%  100 samples/s" in notebook[2]
    assert "left" in notebook[2]
    assert notebook[-1] == ""


def test_training_in_a_notebook_shows_its_progress_and_in_a_pipe_it_is_silent(notebook, capsys, monkeypatch):
    words = {"budget": "3updates", "out": False}
    offbeat.train("quadratic", "asgd", 2, **words)
    assert any("quadratic / asgd" in line for line in notebook)
    count = len(notebook)
    offbeat.train("quadratic", "asgd", 2, progress=False, **words)
    assert len(notebook) == count
    monkeypatch.delitem(sys.modules, "IPython")
    offbeat.train("quadratic", "asgd", 2, **words)
    assert (len(notebook), *capsys.readouterr()) == (count, "", "")


def test_a_script_on_a_terminal_shows_its_progress(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(progress, "console", lambda stderr=False: Console(file=out, force_terminal=True, width=100))
    offbeat.train("quadratic", "asgd", 2, budget="200updates", out=False)
    assert "quadratic / asgd" in out.getvalue()


def test_a_run_shows_a_small_table_and_a_curve():
    run = offbeat.train("quadratic", "asgd", 2, budget="30updates", out=False)
    shown = run._repr_html_()
    assert "asgd on quadratic" in shown
    assert shown.count("<polyline") == 1
    points = shown.split('points="')[1].split('"')[0].split()
    assert len(points) == run.metrics.num_rows
    heights = [float(p.split(",")[1]) for p in points]
    assert heights[0] < heights[-1], "a loss that falls goes down on the screen"
    assert len(shown) < 2000
    assert str(run).startswith("asgd on quadratic, workers 2: done, loss ")


def test_a_comparison_shows_that_it_has_begun_before_its_first_process_has_started(notebook):
    with progress.cells_progress("comparing", [SimpleNamespace(share=0.0, outcome=None)] * 2):
        assert "0%  0/2 runs" in notebook[-1]


def test_the_clock_alone_shows_shares_as_percentages_in_a_notebook_as_on_a_terminal():
    found = offbeat.time(["sync", "asgd"], 2, compute=["1s", "2s@0"], service="0s", budget="100s", progress=False)
    shown = found._repr_html_()
    assert [f"{s['idle_share']:.1%}" in shown for s in found.summaries] == [True, True]
    assert "25.0%" in shown, "of two workers in step one waits for half of the time"
