"""Working with run folders: listing, filtering, tagging, removing, comparing two; and delays without training."""

import heapq
import io
import json
import sys

import numpy as np
import pytest

import offbeat
from folders import make
from harness import mlp_task
from offbeat import cli
from offbeat.core.errors import ConfigError, StoreError
from offbeat.engines.cluster import Cluster
from offbeat.folders.finding import find
from offbeat.folders.run_files import RunFiles
from offbeat.lab.runs import store
from offbeat.lab.runs.folder import Folder
from offbeat.lab.runs.result import Run
from offbeat.lab.studies.delays import simulate
from offbeat.report.diff import diff
from offbeat.report.filter import matching
from offbeat.report.pages import delay_study


def offbeat_command(capsys, monkeypatch, *words):
    """(exit code, stdout, stderr)"""
    monkeypatch.setattr("sys.argv", ["offbeat", *map(str, words)])
    with pytest.raises(SystemExit) as e:
        cli.main()
    return e.value.code, *capsys.readouterr()


@pytest.fixture
def runs(tmp_path):
    for solver, final in (("asgd", 0.9), ("sync", 0.8)):
        for seed in range(2):
            make(tmp_path / f"{solver}-{seed}", solver=solver, seed=seed, accuracy=(0.1, final + seed / 100))
    return tmp_path


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["solver=asgd"], ["asgd-0", "asgd-1"]),
        (["solver!=asgd", "seed=1"], ["sync-1"]),
        (["accuracy>0.9"], ["asgd-1"]),
        (["accuracy>=0.9"], ["asgd-0", "asgd-1"]),
        (["accuracy<0.81"], ["sync-0"]),
        (["optimizer.lr=0.050"], ["asgd-0", "asgd-1", "sync-0", "sync-1"]),
        (["tags=good"], []),
    ],
)
def test_conditions_choose_runs(runs, conditions, names):
    assert [r.name for r in matching(find([runs]), conditions)] == names


@pytest.mark.parametrize(
    ("condition", "words"),
    [("solver", "like solver=asgd"), ("slover=x", "did you mean"), ("loss>a", "compares numbers")],
)
def test_bad_conditions_are_refused_in_one_line(runs, condition, words):
    with pytest.raises(ConfigError, match=words):
        matching(find([runs]), [condition])


def test_a_damaged_run_among_others_is_left_out_and_named_it_is_an_error(runs, capsys, monkeypatch):
    (runs / "asgd-1" / "run.json").write_text('{"format": 1, "conf')
    code, out, err = offbeat_command(capsys, monkeypatch, "runs", "list", runs, "--json")
    assert (code, len(json.loads(out))) == (0, 3)
    (line,) = err.splitlines()
    assert line.startswith("offbeat: left out: ")
    assert "asgd-1" in line
    assert offbeat_command(capsys, monkeypatch, "runs", "list", runs / "asgd-1")[0] == 2
    for name in ("asgd-0", "sync-0", "sync-1"):
        (runs / name / "run.json").write_text("{")
    with pytest.raises(StoreError, match=r"cannot be read: it is not JSON .*; and 3 more like it"):
        find([runs])


@pytest.mark.parametrize("name", ["trace.parquet", "metrics.parquet"])
def test_an_ended_run_that_lacks_a_table_is_not_shown_as_if_it_were_whole(runs, name, capsys, monkeypatch):
    (runs / "asgd-0" / name).unlink()
    code, _, err = offbeat_command(capsys, monkeypatch, "report", runs / "asgd-0", "-o", runs / "x.html")
    assert code == 2
    assert f"has no {name}, and its run has ended" in err
    with pytest.raises(StoreError, match="was it removed"):
        Run.load(runs / "asgd-0")


def test_a_run_that_has_not_ended_may_lack_its_trace(runs, capsys, monkeypatch):
    about = json.loads((runs / "asgd-0" / "run.json").read_text())
    (runs / "asgd-0" / "run.json").write_text(json.dumps({**about, "status": "interrupted"}))
    (runs / "asgd-0" / "trace.parquet").unlink()
    code, out, _ = offbeat_command(capsys, monkeypatch, "diff", runs / "asgd-0", runs / "asgd-1")
    assert code == 0
    assert "gradient 0 is in the trace of one of them only" in out


def test_tags_are_kept_beside_the_run_and_can_be_asked_for(runs, capsys, monkeypatch):
    code, _, _ = offbeat_command(capsys, monkeypatch, "runs", "tag", runs / "asgd-0", "--add", "good", "--add", "draft")
    assert code == 0
    store.tag(runs / "asgd-0", [], ["draft"])
    code, out, _ = offbeat_command(capsys, monkeypatch, "runs", "list", runs, "--where", "tags=good", "--json")
    assert [r["tags"] for r in json.loads(out)] == ["good"]


def test_removing_takes_what_the_run_made_and_nothing_else(runs, capsys, monkeypatch):
    (runs / "sync-0" / "notes.txt").write_text("mine")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))  # nobody there to answer
    code, _, err = offbeat_command(capsys, monkeypatch, "runs", "remove", runs)
    assert code == 1
    assert err == "nothing was removed; with --yes nobody is asked\n"
    assert (runs / "asgd-0" / "run.json").exists()
    code, out, _ = offbeat_command(capsys, monkeypatch, "runs", "remove", runs, "--where", "solver=sync", "--yes")
    assert (code, out) == (0, "removed 2 runs\n")
    assert sorted(p.name for p in runs.iterdir()) == ["asgd-0", "asgd-1", "sync-0"]
    assert [p.name for p in (runs / "sync-0").iterdir()] == ["notes.txt"]


def whole_run(folder):
    """A run that leaves every kind of file: a dataset, snapshots, a diagnosis, and a vocabulary as word2vec's."""
    task = mlp_task(fingerprint="whole")
    task.files = lambda: {"vocabulary.txt": "the\nsea\n"}
    words = {"budget": "40updates", "batch": 4, "saves_per_epoch": 5, "diagnose_every": 9, "out": folder}
    return offbeat.train(task, "asgd", 2, **words)


def test_nothing_of_a_removed_run_is_left(tmp_path):
    run = whole_run(tmp_path / "run")
    for name in (
        "vocabulary.txt",
        "evaluation.json",
        "partition.json",
        "diagnostics.parquet",
        "saves/000000.safetensors",
    ):
        assert (run.path / name).exists(), name
    store.tag(run.path, ["good"], [])
    store.remove(run.path)
    assert not run.path.exists()


FOREIGN = ("customers.parquet", "model.safetensors", "saves/notes.txt", "saves/mine.safetensors", "parts/x.parquet")


@pytest.mark.parametrize("what", ["remove", "again", "an unfinished run"])
def test_files_of_others_are_never_touched(tmp_path, what):
    folder = tmp_path / "run"
    for name in FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    whole_run(folder)
    if what == "remove":
        store.remove(folder)
    elif what == "again":
        task = mlp_task(fingerprint="whole")
        offbeat.train(task, "asgd", 2, budget="5updates", batch=4, out=folder, again=True)
    else:
        info = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**info, "status": "running"}))
        whole_run(folder)  # it has no checkpoint, and starts anew
    assert {name: (folder / name).read_text() for name in FOREIGN} == dict.fromkeys(FOREIGN, "mine")
    assert (folder / "run.json").exists() == (what != "remove")


@pytest.mark.parametrize("name", ["weights.safetensors", "metrics.parquet", "saves/000000.safetensors"])
def test_a_folder_of_somebody_elses_is_not_taken_over(tmp_path, name):
    """Files that are called like a run's, where no run was."""
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    (tmp_path / "run" / name).write_text("mine")
    for again in (False, True):
        with pytest.raises(StoreError, match=f"has a {name} that is not of a run"):
            offbeat.train("quadratic", "asgd", 2, budget="5updates", out=tmp_path / "run", again=again)
    assert (tmp_path / "run" / name).read_text() == "mine"
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("name", ["saves", "parts"])
def test_no_link_is_followed(tmp_path, name):
    whole_run(tmp_path / "run")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "000000.safetensors").write_text("mine")
    for file in (tmp_path / "run" / name).glob("*"):
        file.unlink()
    if (tmp_path / "run" / name).exists():
        (tmp_path / "run" / name).rmdir()
    (tmp_path / "run" / name).symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(StoreError, match="is a link"):
        store.remove(tmp_path / "run")
    with pytest.raises(StoreError, match="is a link"):
        offbeat.train(mlp_task(fingerprint="whole"), "asgd", 2, budget="5updates", out=tmp_path / "run", again=True)
    assert [p.name for p in elsewhere.iterdir()] == ["000000.safetensors"]


def test_a_run_in_progress_is_not_removed(runs):
    folder = Folder(runs / "asgd-0")
    folder.acquire()
    try:
        with pytest.raises(StoreError, match="is in use"):
            store.remove(runs / "asgd-0")
    finally:
        folder.release()
    assert (runs / "asgd-0" / "run.json").exists()


def test_no_folder_of_runs_is_no_error(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert offbeat_command(capsys, monkeypatch, "runs")[:2] == (0, "no runs\n")


# -- two runs ---------------------------------------------------------------------------------------------------


def test_a_run_and_its_repetition_are_the_same(tmp_path):
    options = {"budget": "20updates", "batch": 8}
    for name in "ab":
        offbeat.train("quadratic", "asgd", 3, out=tmp_path / name, **options)
    found = diff(RunFiles.open(tmp_path / "a"), RunFiles.open(tmp_path / "b"))
    assert found.same, found


def test_the_first_differing_update_is_found(tmp_path):
    """Other learning rates: the first gradient is taken at the same point, the second is not."""
    for name, lr in (("a", 0.1), ("b", 0.2)):
        solver = offbeat.solver("plain", lr=lr)
        offbeat.train("quadratic", solver, 1, budget="20updates", out=tmp_path / name)
    a, b = (RunFiles.open(tmp_path / n) for n in "ab")
    found = diff(a, b)
    rows = list(zip(a.trace().to_pylist(), b.trace().to_pylist(), strict=True))
    assert found.row == next(i for i, (x, y) in enumerate(rows) if x != y) == 1  # the first is taken at the same point
    assert set(found.columns) == {k for k in rows[1][0] if rows[1][0][k] != rows[1][1][k]}
    assert found.config == {"optimizer.lr": (0.1, 0.2)}
    assert "params_sha256" in found.outcomes


def test_a_longer_run_differs_where_the_shorter_one_ends(tmp_path):
    a, b = (RunFiles.open(make(tmp_path / str(n), gradients=n, seconds=n / 10)) for n in (30, 40))
    found = diff(a, b)
    assert found.row == 30


def test_wall_times_are_no_difference(tmp_path):
    a = RunFiles.open(make(tmp_path / "a", clock="wall", seconds=1.0))
    b = RunFiles.open(make(tmp_path / "b", clock="wall", seconds=2.0))
    assert diff(a, b).same


# -- delays -----------------------------------------------------------------------------------------------------


def slow_delays(workers, updates, seed, sigma):
    """jain2018's simulation, by hand: each worker's gradients arrive N(1, sigma) apart; count updates in between."""
    rng = np.random.default_rng(seed)
    heap = [(rng.normal(1, sigma), i) for i in range(workers)]
    heapq.heapify(heap)
    read, taus = [0] * workers, []
    for version in range(updates):
        time, i = heapq.heappop(heap)
        taus.append(version - read[i])
        read[i] = version + 1
        heapq.heappush(heap, (time + rng.normal(1, sigma), i))
    return np.array(taus[updates // 20 :])


def test_delays_have_the_distribution_of_the_papers_simulation():
    taus = simulate(Cluster.parse(workers=16, compute="normal(1, 0.2)"), 20_000)
    slow = slow_delays(16, 20_000, 7, 0.2)
    assert len(taus) == 20_000
    assert taus.mean() == pytest.approx(15, abs=0.02)  # conservation: N - 1
    assert taus.std() == pytest.approx(slow.std(), rel=0.03)
    ours, theirs = (np.bincount(t, minlength=60)[:60].cumsum() / len(t) for t in (taus, slow))
    assert np.abs(ours - theirs).max() < 0.02


def test_one_worker_is_never_stale_and_equal_workers_are_always_n_minus_1():
    assert set(simulate(Cluster.parse(workers=1, compute="normal(1, 0.2)"), 100)) == {0}
    assert set(simulate(Cluster.parse(workers=5, compute="1s"), 100)) == {4}


def test_the_fit_of_a_normal_sample_is_close_and_that_of_a_lump_is_not():
    rng = np.random.default_rng(0)
    close = delay_study.fit(rng.normal(100, 20, 20_000).round().astype(int), 101)
    assert (close["mean"], close["std"]) == (pytest.approx(100, abs=0.5), pytest.approx(20, abs=0.5))
    assert close["fit error"] < 0.02
    assert delay_study.fit(np.array([0] * 90 + [100] * 10), 11)["fit error"] > 0.3


def test_the_command_prints_the_fit_and_writes_a_page(tmp_path, capsys, monkeypatch):
    out = tmp_path / "d.html"
    words = ("delays", "--workers", "2,4", "--updates", 500, "--json", "-o", out)
    code, printed, _ = offbeat_command(capsys, monkeypatch, *words)
    assert code == 0
    assert [f["theory"] for f in json.loads(printed)] == [1.0, 3.0]
    assert 'id="library"' in out.read_text(encoding="utf-8"), "it needs no network"
    code, _, error = offbeat_command(capsys, monkeypatch, "delays", "--workers", "none")
    assert (code, error.count("\n")) == (2, 1)


def test_the_report_command_writes_a_page_and_refuses_other_names(runs, capsys, monkeypatch):
    page = runs / "r.html"
    code, out, _ = offbeat_command(capsys, monkeypatch, "report", runs, "-o", page)
    assert code == 0
    assert "4 runs" in out
    assert page.exists()
    for words in (("report", runs, "-o", runs / "r.txt"), ("report", runs / "none"), ("export", "gif", runs)):
        code, _, error = offbeat_command(capsys, monkeypatch, *words)
        assert (code, error.count("\n")) == (2, 1), words


def test_runs_show_says_which_configurations_share_a_folder(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for solver, seed, lr in (("sync", 0, 0.1), ("sync", 1, 0.1), ("asgd", 0, 0.1), ("asgd", 0, 0.2)):
        make(tmp_path / f"runs/{solver}-{seed}-{lr}", solver=solver, seed=seed, lr=lr)
    code, out, _ = command("runs", "show")
    assert not code
    head, *parts = out.split("\n\n")
    assert head == "4 runs of 3 configurations"
    assert [part.splitlines()[0].split(":")[0] for part in parts[:3]] == [
        "asgd lr=0.1",
        "asgd lr=0.2",
        "sync lr=0.1",
    ]
    assert "seeds 0, 1, runs/sync-0-0.1 and 1 more" in parts[2]
    assert "    optimizer.lr = 0.2" in parts[1].splitlines()
    assert parts[3].startswith("the same in all")
    assert "optimizer.lr" not in parts[3]
