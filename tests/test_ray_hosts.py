"""Runs on a Ray cluster of four hosts with addresses of their own, and what can happen to them there."""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from hosts import COUNT, hosts
from offbeat.lab.validation.namespaces import address, obstacle
from offbeat.lab.validation.ray_hosts import HEAD
from processes import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
EACH, WORKERS = 20, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if (why := obstacle()) is not None:
        assert not os.environ.get("OFFBEAT_REQUIRE_HOSTS"), why
        pytest.skip(why)
    made = hosts()
    made.folder.mkdir()
    try:
        made.open()
        for k in range(1, COUNT + 1):
            made.start(k)
        yield made
    finally:
        made.close()
        shutil.rmtree(made.folder, ignore_errors=True)


def outcome(cluster, scenario):
    words = [sys.executable, HERE / "on_hosts.py", HEAD, cluster.name, scenario]
    done = cluster.run(1, *words, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run(cluster, scenario, *, again=True):
    """To its end. `again`: what has the same bits every time is computed again."""
    found = outcome(cluster, scenario)
    print(scenario, found["incidents"])
    assert found["ended"] == "idle"
    assert found["replayed"] or not again, "computed again from the journal, it has the same bits"
    assert found["once"], "no gradient counts twice"
    assert found["lost"] == 0
    return found


@pytest.mark.parametrize("scenario", ["plain", "actor", "clear", "slow link", "heals"])
def test_a_run_on_four_hosts(cluster, scenario):
    found = run(cluster, scenario)
    assert found["updates"] == EACH * WORKERS
    assert found["applied"] == [EACH] * WORKERS
    assert found["all"], "every batch has its row"
    assert len(found["nodes"]) == 4
    assert found["encrypted"] == (scenario == "plain" or scenario in ("slow link", "heals", "actor"))
    assert not found["incidents"]


def test_in_step_too(cluster):
    assert run(cluster, "sync")["updates"] == EACH


def test_a_server_in_parts_on_several_hosts_has_the_bits_of_one(cluster):
    found = run(cluster, "shards")
    assert found["applied"] == [EACH] * WORKERS
    assert found["encrypted"]
    assert len({found["where"][rank] for rank in ("-1", "-2", "-3")}) > 1, "server and shards are not all on one host"
    assert not found["incidents"]


def test_a_shard_that_is_killed_takes_nothing_with_it(cluster):
    found = run(cluster, "a shard killed")
    assert found["applied"] == [EACH] * WORKERS
    assert any("shard 0 of it was lost" in i for i in found["incidents"])


def test_memory_that_all_share_is_found_within_one_host(cluster):
    found = run(cluster, "hogwild", again=False)
    assert found["applied"] == [EACH] * 2
    assert found["nodes"] == [address(1)]


def test_memory_that_all_share_is_not_found_across_hosts_and_that_is_said(cluster):
    """Each host has two places; four workers ask for four."""
    why = outcome(cluster, "hogwild, too many")["refused"]
    assert "this method needs memory that all share: all on one machine" in why


def test_workers_on_four_hosts_sum_among_themselves(cluster):
    found = run(cluster, "gloo")
    assert (found["updates"], found["applied"]) == (EACH, [EACH] * WORKERS)
    assert len(found["nodes"]) == 4
    assert not found["incidents"]


def test_those_on_one_host_sum_first(cluster):
    found = run(cluster, "gloo, some together")
    assert found["applied"] == [EACH] * 6
    assert len(set(found["where"].values())) == 4, "six workers on four hosts: some are together, some are not"


@pytest.mark.parametrize("scenario", ["gloo, worker killed", "gloo, node lost"])
def test_the_others_sum_on_without_who_is_lost(cluster, scenario):
    found = run(cluster, scenario, again=False)
    assert found["updates"] == EACH
    assert sorted(found["applied"])[1:] == [EACH] * (WORKERS - 1)
    assert sum("was lost" in i for i in found["incidents"]) == 1
    if scenario == "gloo, node lost":
        cluster.start(4)


def test_a_server_that_is_killed_five_times_loses_nothing(cluster):
    found = run(cluster, "server five times")
    assert found["applied"] == [EACH] * WORKERS
    assert sum("the server was lost" in i for i in found["incidents"]) == 5


def test_lost_workers_are_replaced(cluster):
    found = run(cluster, "worker killed")
    assert sum("was lost" in i and "restarted" in i for i in found["incidents"]) == 2


def test_a_worker_that_hangs_is_replaced(cluster):
    found = run(cluster, "hangs")
    assert any("worker 2 was silent" in i for i in found["incidents"])
    assert found["applied"][2] > 5


def test_a_worker_that_is_stopped_and_goes_on_after_it_was_replaced_changes_nothing(cluster):
    found = run(cluster, "stopped")
    assert any("worker 2 was silent" in i for i in found["incidents"])
    assert any("worker 2 was lost" in i and "restarted" in i for i in found["incidents"])


def test_workers_join_a_running_run(cluster):
    found = run(cluster, "scaled")
    assert found["applied"] == [EACH] * WORKERS
    assert found["all"]


def test_the_workers_of_a_host_that_is_lost_go_on_elsewhere(cluster):
    found = run(cluster, "node lost")
    lost = [i for i in found["incidents"] if "was lost" in i]
    assert lost
    assert all("restarted" in i for i in lost)
    assert found["short"] <= len(lost), "but for the gradients that went with it, everybody has done its part"
    assert address(4) not in found["nodes"]


def test_a_host_that_comes_brings_the_workers_that_are_wanted(cluster):
    """After the one before, three hosts are left."""
    found = run(cluster, "node comes")
    assert found["applied"] == [EACH] * 7
    assert address(4) in found["nodes"]


def test_a_host_that_is_cut_off_for_good_is_done_without(cluster):
    found = run(cluster, "cut for good")
    lost = [i for i in found["incidents"] if "was lost" in i]
    assert lost
    assert all("restarted" in i for i in lost)
    assert found["short"] <= len(lost)
    cluster.kill(4)
    cluster.mend(4)
    cluster.start(4)


def test_a_driver_that_is_killed_leaves_nothing_on_any_host_and_its_run_goes_on(cluster, tmp_path):
    words = ["run", "digits", "--engine", "ray", "--address", HEAD, "--workers", 4, "--budget", "1000updates"]
    offbeat = [sys.executable, "-m", "offbeat"]
    folder = tmp_path / "r"
    driver = cluster.popen(1, *offbeat, *words, "--out", folder, "--checkpoint-every", "1s", out=tmp_path / "out")
    until(lambda: any(folder.glob("checkpoint*")) or driver.poll() is not None, "a checkpoint")
    assert driver.poll() is None, (tmp_path / "out").read_text()
    assert running(cluster)
    driver.kill()
    driver.wait(60)
    until(lambda: not running(cluster), "the processes of the run to end")
    done = cluster.run(1, *offbeat, "resume", folder, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    done = cluster.run(1, *offbeat, "replay", folder, timeout=300)
    assert "equal, bit for bit" in done.stdout, done.stdout + done.stderr
    summary = json.loads((folder / "run.json").read_text())["summary"]
    machines, workers = summary["per_machine"], summary["per_worker"]
    assert [m["machine"] for m in machines] == [address(k) for k in range(1, 5)]
    assert [m["workers"] for m in machines] == [1] * 4
    for kind in ("present", "computing", "communicating", "waiting"):
        assert sum(m[kind] for m in machines) == pytest.approx(sum(w[kind] for w in workers))


GRID = """
task = { name = "quadratic", noise = 1.0 }
cluster = { workers = 3, compute = "exponential(10ms)" }
budget = { updates = 2000 }
evaluate = { every = "500updates" }
[sweep]
seeds = 12
grid = { "solver.name" = ["sync", "asgd"] }
"""


def test_a_sweep_loses_a_host_and_none_of_its_cells(cluster, tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    words = [sys.executable, "-m", "offbeat", "sweep", tmp_path / "grid.toml", "--on", "ray", "--address", HEAD]
    driver = cluster.popen(1, *words, "--out", tmp_path / "s", "--json", out=tmp_path / "out")
    until(lambda: running(cluster, "ray::CellHost", [4]) or driver.poll() is not None, "a cell on host 4")
    assert driver.poll() is None, (tmp_path / "out").read_text()
    cluster.kill(4)
    assert driver.wait(300) == 0, (tmp_path / "out").read_text()
    rows = json.loads((tmp_path / "out").read_text().splitlines()[-1])
    assert [row["status"] for row in rows] == ["done"] * 24
    assert all((Path(row["folder"]) / "weights.safetensors").exists() for row in rows)
    until(lambda: not running(cluster, "ray::CellHost"), "the processes of the cells to end")
    cluster.start(4)


PICKY = """
import ray
from offbeat import named_task

def make():
    if ray.is_initialized() and ray.util.get_node_ip_address().endswith(".4"):
        raise FileNotFoundError("no file /data/train.bin")
    return named_task("quadratic")
"""


def test_what_one_host_lacks_is_said_with_its_address(cluster, tmp_path):
    """Data, another version of offbeat, offbeat itself: one line each, and nothing hangs."""
    (tmp_path / "picky.py").write_text(PICKY)
    other = tmp_path / "other" / "offbeat-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: offbeat\nVersion: 9.9\n")
    none = tmp_path / "none" / "offbeat"
    none.mkdir(parents=True)
    (none / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'offbeat'\")\n")
    there = address(4)
    refused(cluster, tmp_path, "picky:make", f"cannot be made on machine {there}: FileNotFoundError")
    for path, why in (
        (other.parent, f"machine {there} has other versions: offbeat 9.9 there"),
        (none.parent, "No module named"),
    ):
        cluster.kill(4)
        cluster.start(4, PYTHONPATH=str(path))
        refused(cluster, tmp_path, "quadratic", why)
    cluster.kill(4)
    cluster.start(4)


def refused(cluster, folder, task, why):
    words = [sys.executable, "-m", "offbeat", "run", task, "--engine", "ray", "--address", HEAD, "--workers", 4]
    done = cluster.run(
        1, *words, "--budget", "5updates", "--out", folder / "r", "--again", timeout=200, PYTHONPATH=str(folder)
    )
    assert (done.returncode, why in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


def running(cluster, what="ray::Host", where=range(1, 5)):
    """Processes of a run, on any host."""
    found = []
    for k in where:
        for pid in cluster.pids(k):
            with contextlib.suppress(OSError):
                if what in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                    found.append(pid)
    return found


def test_nothing_stays_behind(cluster):
    """No process of a run outlives it."""
    until(lambda: not running(cluster), "the processes of all runs to end")
