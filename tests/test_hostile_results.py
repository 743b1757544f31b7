"""Tables of results, validations and reproductions of strangers: one line or the work, nothing outside is touched."""

import json
import os
from pathlib import Path

import pytest

import hostile_results
from attacks import Arena, attack
from hostile import ESCAPES, RUN, Kind
from offbeat.core.errors import StoreError
from offbeat.lab.papers import reproducing, stored
from offbeat.lab.validation.validate import load, validate

STORM = bool(os.environ.get("OFFBEAT_STORM"))
FEW = 48
SHARDS = 4
NOTHING = {base: Kind("nothing", base, lambda folder: None) for base in hostile_results.COMMANDS}


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reproducing, "recipe", hostile_results.tiny)
        made = Arena(tmp_path_factory.mktemp("results") / "arena", hostile_results.make_bases)
        patched.setattr(stored, "files", lambda package: made.work / RUN)
        yield made


def wrong(arena, kinds):
    return [
        line
        for kind in kinds
        for line in attack(arena, kind, hostile_results.COMMANDS[kind.base], hostile_results.COMMANDS[kind.base])
    ]


def test_the_bases_are_whole(arena):
    """Without a change every command does its work: what is tried is the change."""
    for base, commands in hostile_results.COMMANDS.items():
        assert not list(attack(arena, NOTHING[base], commands, commands))
    arena.set_up(NOTHING["package"])
    assert len(stored.stored(hostile_results.STORED)) > 10
    assert reproducing.plan("tiny", out=arena.bases / "reproductions").collect() == 2


def test_some_kinds(arena):
    every = list(hostile_results.kinds(arena.bases))
    assert len(every) > 500
    assert not wrong(arena, every[:: len(every) // FEW])


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_kinds(arena, shard):
    """All of them with OFFBEAT_STORM set, else every third."""
    every = list(hostile_results.kinds(arena.bases))
    assert not wrong(arena, every[shard :: SHARDS * (1 if STORM else 3)])


# -- one line that says what -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v.pop("before"), "missing required field `before`"),
        (lambda v: v["before"].pop("load"), "missing required field `load`"),
        (lambda v: v["after"].update(load=[]), "length >= 1"),
        (lambda v: v["rows"][0].update(real="fast"), "Expected `float | null`, got `str`"),
        (lambda v: v["rows"][0].update(what="luck"), "Invalid enum value 'luck'"),
        (lambda v: v["rows"][0].update(high=1e300), "<= 1e+100"),
        (lambda v: v.update(repeats=2**40), "<= 1000"),
    ],
)
def test_what_is_wrong_with_a_validation_is_said(arena, tmp_path, change, said):
    found = json.loads((arena.bases / "validated" / "validation.json").read_text())
    change(found)
    (tmp_path / "v.json").write_text(json.dumps(found))
    with pytest.raises(StoreError) as caught:
        load(tmp_path / "v.json")
    assert str(caught.value).startswith(f"{tmp_path / 'v.json'} cannot be read: ")
    assert said in str(caught.value)


def test_names_of_a_validation_are_made_legible(arena, tmp_path):
    found = json.loads((arena.bases / "validated" / "validation.json").read_text())
    found["rows"][0]["case"] = ESCAPES
    (tmp_path / "v.json").write_text(json.dumps(found))
    assert "\x1b" not in str(load(tmp_path / "v.json"))


@pytest.mark.parametrize("name", ["nothing.json", "folder"])
def test_a_validation_that_is_no_file_is_one_line(name, shell):
    Path("folder").mkdir()
    code, out, err = shell("validate", "--markdown", name)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert name in err


def test_a_validation_without_a_place_says_so_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.lab.validation.validate.measure", lambda *a, **k: pytest.fail("it was run"))
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot make .*file"):
        validate(out=tmp_path / "file")


def test_cases_without_one_to_fit_to_are_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.lab.validation.validate.measure", lambda *a, **k: pytest.fail("it was run"))
    with pytest.raises(Exception, match="needs cases to fit to"):
        validate(only="sync, as many as cores", out=tmp_path / "v")


def test_a_validation_of_which_nothing_could_be_run_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.lab.validation.validate.measure", lambda *a, **k: ([], {"a": "the disk is full"}))
    with pytest.raises(StoreError, match="no case could be run: the disk is full"):
        validate(out=tmp_path / "v")


def test_a_table_of_something_else_is_refused_before_anything_runs(arena, shell, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr("offbeat.cli.papers.run_study", lambda *a, **k: pytest.fail("it was run"))
    pq.write_table(pa.table({"customer": [1, 2]}), "mine.parquet")
    before = Path("mine.parquet").read_bytes()
    code, out, err = shell("reproduce", "tiny", "--table", "mine.parquet", "--out", "r")
    assert (code, out) == (2, "")
    assert "mine.parquet is no table of results of tiny: " in err
    assert Path("mine.parquet").read_bytes() == before


def test_a_table_goes_into_a_folder_that_is_not_there_yet(arena, shell):
    folder = arena.bases / "reproductions"
    code, _, err = shell("reproduce", "tiny", "--collect", "--out", folder, "--table", "a/b/t.parquet")
    assert code == 0, err
    assert Path("a/b/t.parquet").exists()


def test_an_empty_size_is_no_size(arena, shell):
    code, _, err = shell("reproduce", "tiny", "--size", "")
    assert code == 2
    assert "unknown size of tiny ''" in err


@pytest.mark.parametrize("flag", ["--images", "--export"])
def test_a_folder_that_cannot_be_made_is_one_line(arena, flag, shell):
    arena.set_up(NOTHING["package"])
    Path("file").touch()
    more = ("--markdown",) if flag == "--images" else ("tiny", "--collect")
    code, _, err = shell("reproduce", *more, flag, "file")
    assert (code, len([line for line in err.splitlines() if line.startswith("offbeat: ")])) == (2, 1), err
