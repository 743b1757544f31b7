"""A grid on the command line of `sweep`: the same cells as that of a file, and as that of Python."""

import re
from pathlib import Path

import pytest

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.lab.config.grid import parse_grid, split_values

FLAGS = ("--grid", "optimizer.lr=0.01,0.03", "--grid", "cluster.workers=2,3", "--seeds", 2, "--budget", "6updates")
FILE = """
task = "quadratic"
budget = { updates = 6 }
[sweep]
seeds = 2
grid = { "optimizer.lr" = [0.01, 0.03], "cluster.workers" = [2, 3] }
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0.01,0.03", ["0.01", "0.03"]),
        ("normal(10ms, 1ms),20ms", ["normal(10ms, 1ms)", "20ms"]),
        ('["10ms@0", "20ms@1"],["5ms"]', ['["10ms@0", "20ms@1"]', '["5ms"]']),
        ("'a,b',c", ["'a,b'", "c"]),
        ("{ a = [1, 2] }, 3", ["{ a = [1, 2] }", " 3"]),
        ("a(b(c,d),e),f", ["a(b(c,d),e)", "f"]),
        ("a),b", ["a)", "b"]),
        ("", [""]),
        ("a,", ["a", ""]),
    ],
)
def test_commas_within_brackets_and_quotes_separate_nothing(text, parts):
    assert list(split_values(text)) == parts


def test_values_have_the_types_of_a_file():
    grid = parse_grid(["optimizer.lr=0.01, 1", "solver.name = sync,asgd", "record.gap=true,false", "task.model='a,b'"])
    assert grid == {
        "optimizer.lr": [0.01, 1],
        "solver.name": ["sync", "asgd"],
        "record.gap": [True, False],
        "task.model": ["a,b"],
    }
    assert [type(v) for v in grid["optimizer.lr"]] == [float, int]


@pytest.mark.parametrize("text", ["optimizer.lr", "=1,2", "optimizer.lr=", "optimizer.lr=1,,2", "optimizer.lr=1,"])
def test_what_is_no_grid_is_refused(text, shell):
    with pytest.raises(ConfigError, match=r"--grid takes key=values, such as optimizer\.lr=0\.01,0\.1, got"):
        parse_grid([text])
    code, out, err = shell("sweep", "quadratic", "--grid", text)
    assert (code, out, len(err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "quadratic has no [sweep] section with a grid or a list"),
        (("--grid", "optimizer.lr=1", "--grid", "optimizer.lr=2"), "--grid optimizer.lr is there twice"),
        (("--grid", "optimizer.rl=1"), "cell optimizer.rl=1"),
        (("--grid", "cluster.workers=2", "--workers", 3), "cluster.workers is swept, and cannot have a value"),
        (("--grid", f"seed={'9' * 5000}"), "--grid seed is a number that no setting can hold"),
        (("--grid", f"task.x={'[' * 5000}"), "--grid task.x is nested too deeply"),
    ],
)
def test_bad_grids_are_one_line(flags, said, shell):
    code, out, err = shell("sweep", "quadratic", *flags)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert not Path("sweeps").exists()


def test_shell_file_and_python_make_the_same_cells(shell):
    Path("grid.toml").write_text(FILE)
    assert shell("sweep", "quadratic", *FLAGS, "--processes", 1, "--out", "typed")[0] == 0
    assert shell("sweep", "grid.toml", "--processes", 1, "--out", "filed")[0] == 0
    grid = {"optimizer.lr": [0.01, 0.03], "cluster.workers": [2, 3]}
    words = {"grid": grid, "seeds": 2, "budget": "6updates", "processes": 1}
    offbeat.sweep("quadratic", **words, out="said")
    names = [sorted(p.name for p in Path(folder, "cells").iterdir()) for folder in ("typed", "filed", "said")]
    assert names[0] == names[1] == names[2]
    assert len(names[0]) == 8
    params = [
        {
            run.path.name: run.summary["params_sha256"]
            for run in (offbeat.Run.load(p) for p in Path(f, "cells").iterdir())
        }
        for f in ("typed", "filed")
    ]
    assert params[0] == params[1]


def test_without_a_folder_shell_and_python_share_one(shell):
    code, out, _ = shell("sweep", "quadratic", *FLAGS, "--processes", 1)
    assert code == 0
    swept = offbeat.sweep(
        "quadratic",
        grid={"optimizer.lr": [0.01, 0.03], "cluster.workers": [2, 3]},
        seeds=2,
        budget="6updates",
        dry_run=True,
    )
    assert (swept["done"], swept["to_run"]) == (8, 0)
    page = re.search(r"page +offbeat (report .*)", out)[1].split()
    assert shell(*page)[0] == 0


def test_a_grid_takes_the_place_of_the_files(shell):
    Path("grid.toml").write_text(FILE)
    code, out, err = shell("sweep", "grid.toml", "--grid", "solver.name=sync,asgd", "--dry-run")
    assert code == 0, err
    assert re.search(r"keys +solver.name\n", out)
    assert re.search(r"cells +4\n", out)  # two seeds, as the file says


def test_a_solver_of_the_words_and_a_grid_of_python():
    would = offbeat.sweep("digits", "asgd", grid={"optimizer.lr": [0.1, 0.2]}, seeds=3, dry_run=True)
    assert would["cells"] == 6
    with pytest.raises(ConfigError, match="a grid goes by its name"):
        offbeat.sweep("digits", {"optimizer.lr": [0.1]})
