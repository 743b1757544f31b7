"""Nothing is left half done: whatever file operation a run dies or fails at, it goes on to the same bits and files."""

import json
import os
import shutil
import subprocess
from functools import partial

import pytest
import torch

import offbeat
from harness import cluster, mlp_task
from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import StoreError
from offbeat.folders.description import read_description
from offbeat.folders.writing import write_inside
from offbeat.lab.runs import holding
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.holding import Hold
from offbeat.lab.runs.plan import Plan
from offbeat.solvers.asgd import ASGD
from strikes import At, Disk, KilledError, contents, differences, struck


def plan(updates=3):
    """A run with every kind of file: checkpoints, parts, snapshots, a diagnosis, scores by class."""
    return Plan(
        mlp_task(fingerprint="half"),
        ASGD(partial(torch.optim.SGD, lr=0.05)),
        cluster(2, compute="lognormal(10ms,5ms)"),
        Budget.parse(f"{updates}updates"),
        seed=3,
        batch=8,
        evaluate_every=Amount(2, "updates"),
        saves_per_epoch=20,
        diagnose_every=2,
        solver_name="asgd",
        config={"task": {"name": "half"}},
        key="half",
    )


def run(folder, **options):
    """A checkpoint after every event."""
    return execute(plan(), folder, pool=0, checkpoint_seconds=options.pop("seconds", 0.0), **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing happened to, and the operations that it took."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with struck(Disk()) as disk:
        run(folder)
    return contents(folder), disk.seen


def test_a_finished_folder_holds_exactly_what_it_should(whole):
    files, seen = whole
    made = ["best.safetensors", "diagnostics.parquet", "evaluation.json", "lock", "metrics.parquet", "partition.json"]
    made += ["run.json", "saves", *(f"saves/{k:06d}.safetensors" for k in range(3)), "trace.parquet"]
    assert sorted(files) == [*made, "weights.safetensors"]
    assert len({mode for mode, value in files.values() if value != repr("folder")}) == 1
    assert {"mkdir", "open", "write", "fsync", "replace", "unlink", "rmdir"} <= {kind.split()[0] for kind in seen}


def go_on(folder, whole):
    """After whatever happened, in one go."""
    done = run(folder, seconds=1000.0)
    assert done.status == "done"
    assert not differences(contents(folder), whole)


def kills(folder, whole, after, every):
    files, seen = whole
    for at in range(0, len(seen), every):
        with pytest.raises(KilledError), struck(Disk(at, after=after)):
            run(folder)
        go_on(folder, files)
        shutil.rmtree(folder)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_some_operations(tmp_path, whole, after):
    kills(tmp_path / "run", whole, after, every=23)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_operation(tmp_path, whole, after):
    kills(tmp_path / "run", whole, after, every=1)


@pytest.mark.slow
def test_killed_again_and_again(tmp_path, whole):
    """Each life gets a little further."""
    files, _ = whole
    lives, at = 0, 20
    while lives < 100:
        try:
            with struck(Disk(at)):
                run(tmp_path / "run")
            break
        except KilledError:
            lives, at = lives + 1, at + 7
    assert lives > 3
    go_on(tmp_path / "run", files)


def fills(folder, whole, for_good, every):
    files, seen = whole
    for at in range(0, len(seen), every):
        said = None
        try:
            with struck(Disk(at, full=True, for_good=for_good)):
                run(folder)
        except StoreError as e:
            said = str(e)
            assert "No space left on device" in said
            assert "\n" not in said
        if (folder / "run.json").exists():
            info = read_description(folder)
            assert info.status in (("failed", "running", "done") if said else ("done",))
            assert not info.why or said is None or info.status == "done" or info.why == said
        go_on(folder, files)
        shutil.rmtree(folder)


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_no_room_at_some_operations(tmp_path, whole, for_good):
    fills(tmp_path / "run", whole, for_good, every=23)


@pytest.mark.slow
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_no_room_at_many_operations(tmp_path, whole, for_good):
    """At every fourth, unless in a storm."""
    fills(tmp_path / "run", whole, for_good, every=1 if os.environ.get("OFFBEAT_STORM") else 4)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_is_replaced_is_the_old_one_or_the_new_one(tmp_path, whole, after):
    """Killed in the first operations of --again."""
    files, _ = whole
    for at in range(0, 40, 3):
        run(tmp_path / "run", seconds=1000.0)
        with pytest.raises(KilledError), struck(Disk(at, after=after)):
            run(tmp_path / "run", again=True)
        go_on(tmp_path / "run", files)


def test_a_folder_that_vanishes_is_one_line(tmp_path):
    class Takes:
        def on_evaluation(self, row):
            if row["updates"]:
                shutil.rmtree(tmp_path / "run")

    with pytest.raises(StoreError, match=r"^cannot (write|make) .*: No such file or directory$"):
        run(tmp_path / "run", callbacks=[Takes()])
    assert not (tmp_path / "run").exists()
    assert run(tmp_path / "run").status == "done"


@pytest.mark.parametrize("link", [True, False], ids=["a link", "a folder"])
def test_another_folder_in_its_place_is_not_written_to(tmp_path, whole, link):
    """Moved away on its way, and another one put there: the run ends in one line, and goes on where it is now."""
    theirs = tmp_path / "theirs"
    shutil.copytree(run(tmp_path / "other", seconds=1000.0).path, theirs)
    before = contents(theirs)

    class Swaps:
        def on_evaluation(self, row):
            if row["updates"]:
                (tmp_path / "run").rename(tmp_path / "moved")
                (tmp_path / "run").symlink_to(theirs) if link else theirs.rename(tmp_path / "run")

    with pytest.raises(
        StoreError, match=r"run is another folder now than when its run began: nothing is written to it$"
    ):
        run(tmp_path / "run", callbacks=[Swaps()])
    assert not differences(contents(tmp_path / "run"), before)
    go_on(tmp_path / "moved", whole[0])


@pytest.fixture
def small_disk(tmp_path):
    """Some memory as a disk, where the system lets us have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", str(disk)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_is_really_full(small_disk, tmp_path):
    (small_disk / "ballast").write_bytes(b"x" * 90_000)
    with pytest.raises(StoreError, match=r"No space left on device$"):
        run(small_disk / "run")
    (small_disk / "ballast").unlink()
    go_on(small_disk / "run", contents(run(tmp_path / "reference").path))


def test_a_folder_that_is_read_only(small_disk):
    with pytest.raises(KilledError), struck(Disk(60)):
        run(small_disk / "run")
    before = contents(small_disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match=r"^cannot write to .*: Read-only file system$"):
        run(small_disk / "run")
    assert not differences(contents(small_disk / "run"), before)
    assert read_description(small_disk / "run").status == "running"


def test_who_has_the_folder_is_told_and_not_forever(tmp_path):
    said = []

    class Asks:
        def on_evaluation(self, row):
            try:
                run(tmp_path / "run")
            except StoreError as e:
                said.append(str(e))

    run(tmp_path / "run", callbacks=[Asks()])
    assert said
    assert all(f"is in use: process {os.getpid()} is running it, since 20" in line for line in said)
    assert (tmp_path / "run" / "lock").read_bytes() == b""


def test_a_lock_that_was_deleted_under_ones_hands_is_taken_anew(tmp_path, monkeypatch):
    """Who was refused deletes folder and lock just when the next one has opened it: that one must not lock nothing."""
    first, second, third = (Hold(tmp_path / "run") for _ in range(3))
    lock = holding._lock
    first.take()

    def late(file):
        monkeypatch.setattr(holding, "_lock", lock)
        first.release()
        return lock(file)

    monkeypatch.setattr(holding, "_lock", late)
    second.take()
    with pytest.raises(StoreError, match="is in use"):
        third.take()
    second.release()


def test_a_failed_run_says_so_and_goes_on(tmp_path, whole):
    class Fails:
        def on_evaluation(self, row):
            if row["updates"]:
                raise RuntimeError("\x1b[31mno more")

    with pytest.raises(RuntimeError):
        run(tmp_path / "run", callbacks=[Fails()])
    info = read_description(tmp_path / "run")
    assert (info.status, info.why) == ("failed", r"RuntimeError: \x1b[31mno more")
    go_on(tmp_path / "run", whole[0])


def test_a_very_long_reason_is_cut_and_can_be_read(tmp_path):
    class Fails:
        def on_evaluation(self, row):
            if row["updates"]:
                raise RuntimeError("no " * 100_000)

    with pytest.raises(RuntimeError):
        run(tmp_path / "run", callbacks=[Fails()])
    assert len(read_description(tmp_path / "run").why) == 10_000


def test_a_diverged_run_leaves_json_that_everybody_reads(tmp_path):
    words = {"lr": 1e6, "budget": "200updates", "on_divergence": "continue"}
    done = offbeat.train("quadratic", "asgd", 2, out=tmp_path / "run", **words)
    assert done.status == "diverged"
    json.loads((tmp_path / "run" / "run.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert offbeat.Run.load(tmp_path / "run").status == "diverged"


def test_a_played_death_closes_what_was_open_and_nothing_else(tmp_path):
    """What the dead had closed before may be somebody else's number by then."""
    others = []

    def dies():
        write_inside(tmp_path, "a", lambda file: file.write(b"1"))
        others.append(os.open(tmp_path / "a", os.O_RDONLY))
        write_inside(tmp_path, "b", lambda file: file.write(b"2"))

    with pytest.raises(KilledError), struck(Disk(At("replace b"))):
        dies()
    (ours,) = others
    os.fstat(ours)  # still open
    os.close(ours)
