"""Runs on a Ray cluster of four hosts with addresses of their own, and what can happen to them there."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
EACH, WORKERS = 20, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if (why := hosts.obstacle()) is not None:
        assert not os.environ.get("OFFBEAT_REQUIRE_HOSTS"), why
        pytest.skip(why)
    folder = Path("/tmp") / f"obr{os.getpid()}"  # short: Ray's sockets lie below
    folder.mkdir()
    made = hosts.Hosts(4, folder)
    try:
        for k in range(1, 5):
            made.start(k)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def run(cluster, scenario):
    address = f"{cluster.address(1)}:{hosts.PORT}"
    words = [sys.executable, HERE / "on_hosts.py", address, cluster.name, scenario]
    done = cluster.run(1, *words, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(scenario, found["incidents"])
    assert found["ended"] == "idle"
    assert found["replayed"], "computed again from the journal, it has the same bits"
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


def test_a_host_that_is_lost_is_done_without_or_replaced(cluster):
    found = run(cluster, "node lost")
    assert any("was lost" in i for i in found["incidents"])
    cluster.start(4)


def test_nothing_stays_behind(cluster):
    """No process of a run outlives it."""
    for k in range(1, 5):
        for pid in cluster.pids(k):
            assert "ray::Host" not in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
