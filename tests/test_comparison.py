"""`offbeat compare` and `demo`: what is said, printed and drawn, from the first line to the picture."""

import os
import re
import sys
from pathlib import Path

import pytest

from folders import make
from offbeat import cli, terminal
from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError
from offbeat.folders.run_files import RunFiles
from offbeat.lab.studies.compare import SolverLine, Spread
from offbeat.report.figures import comparison


@pytest.fixture
def offbeat(capsys, monkeypatch, tmp_path):
    """Runs the command line in this process, in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["offbeat", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run


SHORT = ("compare", "quadratic", "--solvers", "sync,asgd", "--workers", 4, "--budget", "150updates")
TARGET = ("--target", "loss=0.2")


def drawn(runs, tmp_path, **options):
    """The text of a comparison's picture."""
    return comparison.draw(runs, **options).save(tmp_path / "picture.svg").read_text()


@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_the_picture_says_whose_seconds_it_shows(tmp_path, clock):
    runs = {s: [RunFiles.open(make(tmp_path / s, solver=s, clock=clock))] for s in ("sync", "asgd")}
    text = drawn(runs, tmp_path)
    assert f"{clock} time (s)" in text
    assert ("virtual time" in text) == (clock == "virtual")


def test_a_picture_of_two_clocks_is_refused(tmp_path):
    runs = {c: [RunFiles.open(make(tmp_path / c, clock=c))] for c in ("virtual", "wall")}
    with pytest.raises(ConfigError, match="virtual and in wall time"):
        drawn(runs, tmp_path)


def test_the_picture_carries_the_verdict_and_names_as_they_are(tmp_path):
    name = "$own_1$"
    runs = {name: [RunFiles.open(make(tmp_path / "a", solver=name, task="$x"))]}
    text = drawn(runs, tmp_path, said=f"{name} is first.", target=Target.parse("accuracy=0.5"))
    for words in ("$own_1$ is first.", "$x on 4 workers", "target 0.5", "held-out accuracy"):
        assert words in text


def test_a_comparison_prints_its_verdict_first_and_the_page_says_the_same(offbeat):
    code, out, _ = offbeat(*SHORT, *TARGET, "--seeds", 2, "--out", "c")
    assert code == 0
    first = out.split("\n\n")[0]
    assert "virtual time to loss=0.2" in first
    page = Path("c/report.html").read_text()
    assert first.splitlines()[0][:60] in page
    assert out.index("solver") > len(first)
    assert Path("c/comparison.png").stat().st_size > 10_000


def line(solver, time, over, up, **options):
    some = Spread(0.5, 0.1, 3)
    empty = Spread(None, 0.0, 0)
    values = {
        "accuracy": empty,
        "loss": some,
        "staleness": some,
        "idle": some,
        "seconds": some,
        "statuses": {"done": 3},
    }
    return SolverLine(
        solver=solver, workers=4, seeds=3, time_to_target=time, speed_up=up, over=over, **(values | options)
    )


def table_of(capsys, lines, target):
    terminal.show_comparison(terminal.console(), lines, target)
    return capsys.readouterr().out.splitlines()


def test_the_table_says_over_whom_speed_ups_are(capsys):
    there, missed = Spread(2.0, 0.1, 3), Spread(4.0, 0.1, 2)
    rows = table_of(capsys, [line("plain", missed, "sync", None), line("sync", there, "sync", 1.0)], "loss=0.2")
    assert "speed-up over sync" in rows[0]
    assert "(1 missed)" in rows[1]
    assert "1.00x" in rows[2]


def test_the_table_has_no_empty_columns_and_calls_a_loss_a_loss(capsys):
    rows = table_of(capsys, [line("plain", Spread(None, 0.0, 0), None, None)], None)
    assert "speed-up" not in rows[0]
    assert "loss" in rows[0]
    assert "accuracy" not in rows[0]


def test_without_a_drawing_library_it_is_said_before_the_first_run_and_everything_else_is_there(offbeat, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what an import then finds
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, out, err = offbeat(*SHORT, *TARGET, "--out", "c")
    assert code == 0
    assert err.splitlines()[0] == "without a picture: matplotlib is missing (pip install 'offbeat[figures]')"
    assert "asgd" in out
    assert Path("c/results.parquet").exists()
    assert not list(Path("c").glob("*.png"))
    assert Path("c/report.html").exists()


@pytest.mark.slow
def test_the_demo_reaches_its_target_with_every_solver_and_seed_and_says_who_was_first(offbeat):
    """The simulator's bits do not depend on the number of cores, but on the type of CPU: not a number is looked at."""
    code, out, err = offbeat("demo", "--out", "demo")
    assert code == 0, err
    assert "missed" not in out
    assert "speed-up over plain" in out
    story = out.split("\n\n")[1]
    assert story.startswith(("asgd and dc-asgd are level in", "dc-asgd and asgd are level in"))
    assert re.search(r"sync (needs )?\d\.\d\d times", story)


def test_compare_takes_the_flags_of_the_cluster_and_says_what_would_run(offbeat):
    flags = ("--compute", "10ms", "--compute", "20ms@0", "--latency", "1ms", "--bandwidth", "1Gbps")
    code, out, _ = offbeat(*SHORT, *flags, "--out", "c", "--dry-run")
    assert code == 0
    assert re.search(r"to run +2\n", out)
    assert not Path("c").exists()
    offbeat(*SHORT, *flags, "--out", "c")
    cluster = RunFiles.open(Path("c/asgd-0")).config["cluster"]
    assert cluster["compute"] == ["10ms", "20ms@0"]
    assert (cluster["latency"], cluster["bandwidth"]) == ("1ms", "1Gbps")


def test_one_learning_rate_for_updates_of_different_sizes_is_said_in_one_line_with_the_option(offbeat):
    # Four workers: an update of sync has four times the samples of one of asgd.
    _, out, _ = offbeat(*SHORT, "--set", "optimizer.lr=0.05")
    (line,) = [s for s in out.splitlines() if s.startswith("One learning rate (0.05)")]
    assert "4 samples for sync and of 1 sample for asgd" in line
    assert line.endswith("(--set sync:optimizer.lr=0.2).")
    _, out, _ = offbeat(*SHORT, "--set", "optimizer.lr=0.05", "--set", "sync:optimizer.lr=0.2")
    assert "One learning rate" not in out


def test_a_sweep_ends_with_its_best_points_and_the_command_for_the_page(offbeat):
    text = 'task = "quadratic"\nbudget.updates = 40\n[sweep]\nseeds = 2\n'
    Path("s.toml").write_text(text + 'grid = { "optimizer.lr" = [0.001, 0.01, 0.1] }\n')
    _, out, _ = offbeat("sweep", "s.toml")
    lines = out.splitlines()
    (first,) = [n for n, line in enumerate(lines) if line.startswith("best")]
    assert [line.split()[-1] for line in lines[first : first + 3]] == [
        f"optimizer.lr={lr}" for lr in (0.1, 0.01, 0.001)
    ]
    command = next(line for line in lines if line.startswith("page")).split()[1:]
    assert offbeat(*command[1:])[0] == 0
    assert Path("s.html").exists()


@pytest.mark.parametrize("name", ["report.html", "comparison.png"])
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_nothing_is_written_through_a_link_or_a_pipe_in_its_folder(offbeat, name, what):
    """A folder that came from somebody: what is called like a file of ours leads elsewhere, or waits for ever."""
    words = ("compare", "quadratic", "--solvers", "asgd", "--budget", "9updates", "--out", "c")
    assert offbeat(*words)[0] == 0
    Path("mine").write_text("mine")
    Path("c", name).unlink()
    if what == "link":
        Path("c", name).symlink_to("../mine")
    else:
        os.mkfifo(Path("c", name))
    assert offbeat(*words)[0] == 0
    assert Path("mine").read_text() == "mine"
    assert Path("c", name).is_file()
    assert not Path("c", name).is_symlink()
