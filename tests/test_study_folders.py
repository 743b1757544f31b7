"""The folder of a comparison or sweep: held by one process, and never half written."""

import errno
import os
import sys

import pytest

import offbeat
from offbeat import cli
from offbeat.core.errors import ConfigError, OffbeatError, StoreError
from offbeat.folders.parquet import read_results
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.comparing import plan
from offbeat.lab.studies.study import Study
from strikes import Disk, KilledError, struck


def study(folder):
    """Of two runs that are over."""
    outcome = {"status": "done", "loss": 0.5}
    cells = [Cell({"engine": "sim"}, folder / f"{k}", {"x": k, "seed": 0}, outcome=outcome) for k in range(2)]
    return Study(cells, ["x"], folder)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_operation_its_table_is_whole_the_next_time(tmp_path, after):
    with struck(Disk()) as disk:
        study(tmp_path / "whole" / "study").run()
    whole = sorted(p.name for p in (tmp_path / "whole" / "study").iterdir())
    assert whole == ["lock", "results.parquet"]
    folder = tmp_path / "study"
    for at in range(len(disk.seen)):
        with pytest.raises(KilledError), struck(Disk(at, after=after)):
            study(folder).run()
        study(folder).run()
        assert sorted(p.name for p in folder.iterdir()) == whole
        assert [row["x"] for row in read_results(folder).to_pylist()] == [0, 1]


def test_the_second_process_is_told_who_has_it(tmp_path, monkeypatch):
    said = []

    def while_it_runs(*_, **__):
        with pytest.raises(StoreError) as told:
            study(tmp_path / "study").run()
        said.append(str(told.value))
        return True

    monkeypatch.setattr(Study, "_write", while_it_runs)
    study(tmp_path / "study").run()
    assert said[0].startswith(f"{tmp_path / 'study'} is in use: process {os.getpid()} is running it, since 20")


@pytest.mark.parametrize("seeds", [0, -1, True, 2.5, None, [], "12", [0.5], [[1]], {1: 2}])
def test_seeds_that_are_none_are_refused_in_one_line(seeds):
    with pytest.raises(ConfigError, match=r"^seeds must be a number of seeds from 1, or a list of them, got "):
        offbeat.compare("quadratic", ["sync"], 2, seeds=seeds, budget="5updates")


def test_a_seed_that_is_given_twice_is_one_run():
    values = {"task": {"name": "quadratic"}, "budget": {"updates": 5}}
    assert [c.folder.name for c in plan(values, "sync", [3, 3, 1], None, "x").cells] == ["sync-3", "sync-1"]


def test_a_name_of_escape_sequences_does_not_reach_the_terminal_from_a_notebook(tmp_path):
    done = offbeat.train("quadratic", "asgd", 2, budget="5updates", out=tmp_path / "\x1b[31mred")
    assert repr(done).endswith(r"\x1b[31mred")
    assert repr(done).isprintable()


@pytest.mark.parametrize("words", [("run", "quadratic", "--cluster", "{}"), ("run", "{}"), ("sweep", "{}")])
def test_a_file_without_end_is_no_configuration(tmp_path, monkeypatch, capsys, words):
    (tmp_path / "endless.toml").symlink_to("/dev/zero")
    monkeypatch.setattr(sys, "argv", ["offbeat", *(w.format(tmp_path / "endless.toml") for w in words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith("endless.toml has more than 16MiB: that is no configuration\n")


def test_a_process_that_cannot_be_started_is_one_line(tmp_path, monkeypatch):
    def none_left(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("offbeat.lab.studies.cells_here.subprocess.Popen", none_left)
    with pytest.raises(OffbeatError, match=r"^a process for the runs cannot be started: Too many open files$"):
        offbeat.compare("quadratic", ["sync"], 2, budget="5updates", out=tmp_path / "c")
