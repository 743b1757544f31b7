"""Folders of strangers: every command says one line, or does its work; nothing is executed, nothing outside touched."""

import io
import json
import os
import socket
import subprocess
import sys
import tracemalloc

import pytest

import offbeat
from attacks import Arena, attack
from folders import make
from hostile import COMMANDS, ESCAPES, edit, kinds
from offbeat import cli
from offbeat.core.errors import OffbeatWarning, StoreError
from offbeat.core.legible import legible
from offbeat.folders.finding import find
from offbeat.folders.limits import MOST_JSON
from offbeat.folders.opening import read_bytes
from offbeat.folders.run_files import RunFiles
from offbeat.lab import config
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.trust import check_trusted, signature
from offbeat.report.tables import Table

STORM = bool(os.environ.get("OFFBEAT_STORM"))
SHARDS = 8
FEW = 16


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return Arena(tmp_path_factory.mktemp("hostile") / "arena")


def test_some_kinds_with_some_commands(arena):
    """Every sixteenth part of what `make slow` tries; each kind meets a third of the commands."""
    every = list(kinds(arena.bases))
    chosen = every[:: len(every) // FEW]
    names = list(COMMANDS)
    wrong = [line for i, kind in enumerate(chosen) for line in attack(arena, kind, names[i % 3 :: 3])]
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_kinds_with_every_command(arena, shard):
    """More than 300 kinds, spread over all there are; all of them with OFFBEAT_STORM set."""
    every = list(kinds(arena.bases))
    chosen = every if STORM else every[:: len(every) // 320]
    assert len(chosen) >= 300
    assert not [line for kind in chosen[shard::SHARDS] for line in attack(arena, kind, COMMANDS)]


@pytest.mark.parametrize("name", ["checkpoint, watch.total.loss null", "checkpoint, t0 long"])
def test_a_checkpoint_that_is_wrong_only_in_use_is_one_line_that_names_it(arena, name, capsys, monkeypatch):
    (kind,) = [k for k in kinds(arena.bases) if k.name == name]
    assert not list(attack(arena, kind, ["resume"]))
    code, err = resumes(arena.set_up(kind), monkeypatch, capsys)
    assert code == 2
    assert "went wrong after it was resumed (" in err
    assert "): its checkpoint.safetensors is damaged or of another run, or this is a defect of offbeat" in err


def test_the_bases_are_whole(arena):
    """What is tried is the change, not the folder: without one, commands do their work."""
    for base in ("finished", "real"):
        run = RunFiles.open(arena.bases / base)
        run.read_all()
        assert run.trace().num_rows >= 60
        assert run.tags == ["good"]
    from offbeat.lab.studies.replaying import replay

    assert replay(arena.bases / "real")["updates"] > 0
    assert (arena.bases / "unfinished" / "checkpoint.safetensors").exists()


# -- one line that names the file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda info: info["summary"].update(loss="low"),
            "run.json cannot be read: Expected `float | null`, got `str`",
        ),
        (lambda info: info["summary"].update(workers=0), "Expected `int` >= 1"),
        (lambda info: info.update(status="perhaps"), "Invalid enum value 'perhaps'"),
        (lambda info: info.update(summary=None), "it has ended and has no summary"),
        (lambda info: info["config"].update(task="digits"), "Expected `object`, got `str`"),
        (lambda info: info["config"].update(x=1e400), "a number that is not finite"),
        (lambda info: info.update(format=True), "it does not say its format"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(tmp_path, change, words):
    edit(make(tmp_path / "a"), change)
    with pytest.raises(StoreError) as caught:
        RunFiles.open(tmp_path / "a")
    assert str(caught.value).startswith(str(tmp_path / "a"))
    assert words in str(caught.value)


def test_damaged_ones_among_others_are_left_out_and_counted(tmp_path):
    for k in range(7):
        make(tmp_path / f"r{k}", seed=k)
    for k in range(5):
        (tmp_path / f"r{k}" / "trace.parquet").write_bytes(b"no")
    with pytest.warns(OffbeatWarning) as caught:
        found = find([tmp_path], whole=True)
    assert [r.seed for r in found] == [5, 6]
    assert [str(w.message).startswith("left out: ") for w in caught] == [True] * 4
    assert str(caught[-1].message) == "left out: 5 damaged runs in all"
    assert len(find([tmp_path])) == 7  # a list does not read traces


def test_a_pattern_follows_no_link(tmp_path):
    make(tmp_path / "elsewhere" / "secret")
    make(tmp_path / "runs" / "mine")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert [r.name for r in find([tmp_path / "runs"])] == ["mine"]
    assert [r.name for r in find([f"{tmp_path}/runs/**"])] == ["mine"]


def test_a_folder_may_be_named_through_a_link(tmp_path):
    make(tmp_path / "mine")
    (tmp_path / "latest").symlink_to("mine")
    assert [r.solver for r in find([tmp_path / "latest"])] == ["asgd"]


# -- nothing reaches a terminal, a page, a spreadsheet -----------------------------------------------------------------


def test_text_is_made_legible():
    assert legible("caf\xe9 \u2013 \u65e5\u672c\xa0x") == "caf\xe9 \u2013 \u65e5\u672c\xa0x"
    assert legible("a\x1b[31m\u202e\udcff\n\tb\x9b") == "a\\x1b[31m\\u202e\\udcff  b\\x9b"


def test_markup_in_a_tag_and_a_reason_is_shown_as_it_is(tmp_path, capsys):
    from offbeat.terminal import console, show_summary

    make(tmp_path / "a", files={"tags.json": ["[/red]"]})
    edit(tmp_path / "a", lambda info: info["summary"].update(why=ESCAPES, task="[bold]x[/bold]"))
    show_summary(console(), RunFiles.open(tmp_path / "a").summary)
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert r"\x1b[31m[/red]" in out


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0"),
        ("+x", "'+x"),
        ("-0.5 ± 0.1", "-0.5 ± 0.1"),
        ("-1e-05", "-1e-05"),
        ("+12 %", "+12 %"),
        (-3, "-3"),
        (-0.25, "-0.25"),
        ("asgd", "asgd"),
    ],
)
def test_no_cell_is_a_formula(value, cell):
    import csv

    rows = list(csv.reader(io.StringIO(Table("k", "t", ["=a", "b"], [[value, 1]]).csv())))
    assert rows == [["'=a", "b"], [cell, "1"]]


# -- code ------------------------------------------------------------------------------------------------------------


def own_run(tmp_path, monkeypatch):
    """A run of a task of one's own, in the folder where one stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", os.getcwd())])
    (tmp_path / "trusted_task.py").write_text(
        "from pathlib import Path\nfrom offbeat.tasks.quadratic import Quadratic\n\n\n"
        "def make(dim=5):\n    Path('MADE').touch()\n    return Quadratic(dim)\n"
    )
    done = offbeat.train("trusted_task:make", "asgd", 2, budget="5updates", out="run")
    (tmp_path / "MADE").unlink()
    return done


def test_a_run_of_ones_own_code_is_trusted_and_a_changed_one_is_not(tmp_path, monkeypatch):
    own_run(tmp_path, monkeypatch)
    run = RunFiles.open(tmp_path / "run")
    check_trusted(run, trust=False)
    assert len(run.info.signature) == 64
    for change in (
        lambda info: info["config"]["task"].update(dim=6),
        lambda info: info["config"]["task"].update(name="os:system"),
        lambda info: info.pop("signature"),
    ):
        text = (tmp_path / "run" / "run.json").read_text()
        edit(tmp_path / "run", change)
        with pytest.raises(StoreError, match=r"it would import task \S+ \(\S+\); if you trust that, say --trust"):
            check_trusted(RunFiles.open(tmp_path / "run"), trust=False)
        check_trusted(RunFiles.open(tmp_path / "run"), trust=True)
        (tmp_path / "run" / "run.json").write_text(text)
    check_trusted(RunFiles.open(tmp_path / "run"), trust=False)


def test_another_user_does_not_trust_it(tmp_path, monkeypatch):
    own_run(tmp_path, monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "their state"))
    with pytest.raises(StoreError, match=rf"task trusted_task:make \({tmp_path}/trusted_task.py\)"):
        check_trusted(RunFiles.open(tmp_path / "run"), trust=False)


def test_the_same_name_beside_other_code_is_not_trusted(tmp_path, monkeypatch):
    """One's own folder comes back with somebody's module of the same name."""
    own_run(tmp_path, monkeypatch)
    there = tmp_path / "downloads"
    there.mkdir()
    (tmp_path / "run").rename(there / "run")
    (tmp_path / "trusted_task.py").rename(there / "trusted_task.py")
    monkeypatch.chdir(there)
    with pytest.raises(StoreError, match=r"downloads/trusted_task.py"):
        check_trusted(RunFiles.open(there / "run"), trust=False)


def test_loading_runs_nothing_and_the_model_asks(tmp_path, monkeypatch):
    own_run(tmp_path, monkeypatch)
    edit(tmp_path / "run", lambda info: info.pop("signature"))
    loaded = offbeat.Run.load("run")
    assert loaded.summary["updates"] == 5
    with pytest.raises(StoreError, match="trust=True"):
        loaded.model()
    assert not (tmp_path / "MADE").exists()
    with pytest.raises(offbeat.ConfigError, match="has no module"):  # it is made, and is no module
        offbeat.Run.load("run", trust=True).model()
    assert (tmp_path / "MADE").exists()


def test_the_key_is_the_users_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    own_run(tmp_path, monkeypatch)
    key = tmp_path / "state" / "offbeat" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    assert [p.name for p in key.parent.iterdir()] == ["key"]
    assert key.read_bytes().hex() not in (tmp_path / "run" / "run.json").read_text()


def test_without_a_place_for_a_key_runs_go_on(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    own_run(tmp_path, monkeypatch)
    with pytest.raises(StoreError, match="say --trust"):
        check_trusted(RunFiles.open(tmp_path / "run"), trust=False)


def resumes(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["offbeat", "resume", str(folder)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capsys.readouterr().err


def on_ray(address):
    def change(info):
        info["config"] |= {"engine": "ray", "ray": {"address": address}}
        info |= {"status": "interrupted", "engine": "ray", "key": build(config.make(info["config"])).key}

    return change


def test_a_cluster_that_a_folder_names_is_not_called_without_being_told_to(tmp_path, monkeypatch, capsys):
    """Whoever is at the other end could be handed the token of one's own cluster, and send what a driver unpickles."""
    make(tmp_path / "a")
    with socket.create_server(("127.0.0.1", 0)) as trap:
        address = f"127.0.0.1:{trap.getsockname()[1]}"
        trap.settimeout(0.2)
        config = {"engine": "ray", "ray": {"address": address}}
        edit(
            tmp_path / "a",
            lambda info: (info["config"].update(config), info.update(status="interrupted", engine="ray")),
        )
        code, err = resumes(tmp_path / "a", monkeypatch, capsys)
        assert code == 2
        assert err == (
            f"offbeat: {tmp_path / 'a'} names a cluster and was not made by you, here, with it: it would connect with "
            f"Ray at {address}; if you trust that, say --trust (in Python: trust=True)\n"
        )
        with pytest.raises(TimeoutError):
            trap.accept()


def test_a_cluster_of_ones_own_is_called_again(tmp_path):
    make(tmp_path / "a")
    edit(tmp_path / "a", on_ray("10.0.0.1:6379"))
    signed = signature(RunFiles.open(tmp_path / "a").config)
    edit(tmp_path / "a", lambda info: info.update(signature=signed))
    check_trusted(RunFiles.open(tmp_path / "a"), trust=False, connects=True)
    edit(tmp_path / "a", on_ray("10.0.0.2:6379"))
    with pytest.raises(StoreError, match=r"it would connect with Ray at 10\.0\.0\.2:6379; if you trust that"):
        check_trusted(RunFiles.open(tmp_path / "a"), trust=False, connects=True)
    check_trusted(RunFiles.open(tmp_path / "a"), trust=True, connects=True)
    check_trusted(RunFiles.open(tmp_path / "a"), trust=False)  # where nothing is started
    for nobody in ("auto", None):
        edit(tmp_path / "a", on_ray(nobody))
        check_trusted(RunFiles.open(tmp_path / "a"), trust=False, connects=True)


def test_a_run_of_built_in_parts_needs_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    offbeat.train("quadratic", "asgd", 2, budget="5updates", out=tmp_path / "run")
    assert not (tmp_path / "state").exists()
    check_trusted(RunFiles.open(tmp_path / "run"), trust=False)


@pytest.mark.parametrize("how", [["-m", "offbeat"], ["-c", "from offbeat.cli import main; main()"]])
def test_a_file_where_one_stands_is_not_taken_for_a_module_of_pythons(tmp_path, how):
    """`random` and `numpy` are imported by commands; `-P` leaves out what `-c` puts before everything."""
    for name in ("random", "numpy", "statistics", "pyarrow", "rich"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('EXECUTED').touch()\n")
    make(tmp_path / "runs" / "a")
    flags = ["-P"] if how[0] == "-c" else []
    words = [sys.executable, *flags, *how, "runs", "list", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, len(json.loads(done.stdout))) == (0, 1), done.stderr
    assert not (tmp_path / "EXECUTED").exists()


def test_a_small_file_takes_little_memory_whatever_it_might_have_had(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    tracemalloc.start()
    try:
        assert read_bytes(tmp_path, "run.json", MOST_JSON) == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
